"""A table of results: Markdown for people, plain values for programs; and how samples are summed up.

Used by all probes and `run_all`. It measures nothing.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Table:
    """One table.

    Attributes:
        title: what was measured.
        columns: their names.
        rows: a text for each column.
        note: what a reader must know to judge it.
        figures: the values behind the texts, by any names.
    """

    title: str
    columns: Sequence[str]
    rows: list[Sequence[str]] = field(default_factory=list)
    note: str = ""
    figures: dict[str, Any] = field(default_factory=dict)

    def markdown(self) -> str:
        """The table under its title."""
        lines = [f"### {self.title}", ""]
        if self.rows:
            lines += [_line(self.columns), "|---" * len(self.columns) + "|"]
            lines += [_line(row) for row in self.rows]
        return "\n".join([*lines, *(["", self.note] if self.note else []), ""])


def _line(texts: Sequence[str]) -> str:
    return f"| {' | '.join(text.replace('|', '/').replace(chr(10), ' ') for text in texts)} |"


def quartiles(samples: Sequence[float]) -> tuple[float, float, float]:
    """First quartile, median, third quartile."""
    if len(samples) < 2:
        return samples[0], samples[0], samples[0]
    low, middle, high = statistics.quantiles(samples, n=4, method="inclusive")
    return low, middle, high


def middle(samples: Sequence[float]) -> float:
    """The median."""
    return statistics.median(samples)


def number(value: float) -> str:
    """Three or four digits, never an exponent."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def spread(samples: Sequence[float], scale: float = 1.0) -> str:
    """The median and, in brackets, both quartiles. `scale`: what a sample is multiplied with."""
    low, mid, high = (value * scale for value in quartiles(samples))
    return f"{number(mid)} ({number(low)}; {number(high)})"


def size_label(size_bytes: int) -> str:
    """A size as people say it."""
    for unit, name in ((1 << 20, "MB"), (1 << 10, "KB")):
        if size_bytes >= unit:
            return f"{size_bytes // unit} {name}"
    return f"{size_bytes} B"
