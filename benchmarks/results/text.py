"""The page around the pictures, in Markdown: what was measured, where, when, at which revision, in which state. Pure.

Used by `results_page`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Optional

from harness.row import size_label

from results.figures import Bars, Curves


@dataclass(frozen=True)
class Picture:
    """A drawn figure and the name of its file, beside the page."""

    name: str
    figure: Curves | Bars

    def lines(self) -> list[str]:
        """The picture, and its numbers for those who cannot see it."""
        table = _curve_table(self.figure) if isinstance(self.figure, Curves) else _bar_table(self.figure)
        return [f"![{self.figure.title}]({self.name})", "", *table, ""]


def page(report: dict[str, Any], pictures: Sequence[Picture]) -> str:
    """The whole page."""
    curves = [picture for picture in pictures if isinstance(picture.figure, Curves)]
    others = [picture for picture in pictures if not isinstance(picture.figure, Curves)]
    lines = [
        "# Results",
        "",
        f"Measured on {report['date']} at revision {report['revision']} by `make bench` or `make bench-full`, drawn by "
        "`make bench-page`; [benchmarks](../benchmarks.md) says how it is measured. Only figures of one run can be "
        "compared with each other.",
        "",
        *[f"- {line}" for line in (*report["machine"], *report["setting"])],
        "",
    ]
    if curves:
        lines += ["## Speed against size", ""]
        lines += ["The bytes of a rank's tensor divided by the time of the slowest rank; higher is faster.", ""]
        lines += [line for picture in curves for line in picture.lines()]
    for picture in others:
        lines += [f"## {picture.figure.title[0].upper()}{picture.figure.title[1:]}", "", *picture.lines()]
    return "\n".join(lines).rstrip() + "\n"


def _curve_table(curves: Curves) -> list[str]:
    sizes = sorted({size for points in curves.lines.values() for size, _ in points})
    lines = [f"| GB/s | {' | '.join(map(size_label, sizes))} |", "|---" * (len(sizes) + 1) + "|"]
    for name, points in curves.lines.items():
        speeds = dict(points)
        lines.append(
            f"| {name} | {' | '.join(_number(speeds[size] / 1e9 if size in speeds else None) for size in sizes)} |"
        )
    return lines


def _bar_table(bars: Bars) -> list[str]:
    rows = [f"| {name} | {_number(value)} |" for name, value in bars.values.items()]
    return [f"| | {bars.unit} |", "|---|---|", *rows]


def _number(value: Optional[float]) -> str:
    """Three digits."""
    return "-" if value is None else f"{value:.3g}"
