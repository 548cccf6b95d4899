"""The page around the pictures, in Markdown: what was measured, where, when, at which revision, in which state. Pure.

Used by `results_page`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Optional

from harness.row import size_label
from harness.shares import MEANING, table

from results.figures import Bars, Curves, Shares, all_shares


@dataclass(frozen=True)
class Picture:
    """A drawn figure and the name of its file, beside the page."""

    name: str
    figure: Shares | Curves | Bars

    def lines(self) -> list[str]:
        """The picture, and its numbers for those who cannot see it."""
        return [f"![{self.figure.title}]({self.name})", "", *_numbers(self.figure), ""]


def page(report: dict[str, Any], pictures: Sequence[Picture], docs: str = "..") -> str:
    """The whole page. `docs`: the way from its folder to that of the documents."""
    curves = [picture for picture in pictures if isinstance(picture.figure, Curves)]
    bars = [picture for picture in pictures if isinstance(picture.figure, Bars)]
    slower = [f"- {one}" for one in all_shares(report) if one.slower] or ["None."]
    lines = [
        "# Results",
        "",
        f"Measured on {report['date']} at revision {report['revision']} by `make bench` or `make bench-full`, drawn by "
        f"`make bench-page`; [benchmarks]({docs}/benchmarks.md) says how it is measured. Only figures of one run can "
        "be compared with each other.",
        "",
        *[f"- {line}" for line in (*report["machine"], *report["setting"])],
        "",
        "## Share of the best peer",
        "",
        MEANING,
        "",
        *[line for picture in pictures if isinstance(picture.figure, Shares) for line in picture.lines()],
        "## Rows slower than the best peer",
        "",
        *slower,
        "",
    ]
    if curves:
        lines += ["## Speed against size", ""]
        lines += ["The bytes of a rank's tensor divided by the time of the slowest rank; higher is faster.", ""]
        lines += [line for picture in curves for line in picture.lines()]
    for picture in bars:
        lines += [f"## {picture.figure.title[0].upper()}{picture.figure.title[1:]}", "", *picture.lines()]
    return "\n".join(lines).rstrip() + "\n"


def _numbers(figure: Shares | Curves | Bars) -> list[str]:
    if isinstance(figure, Shares):
        return table(figure.shares)
    return _curve_table(figure) if isinstance(figure, Curves) else _bar_table(figure)


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
    return [f"| | {bars.unit} |", "|---|---|", *rows, *(["", bars.note] if bars.note else [])]


def _number(value: Optional[float]) -> str:
    """Three digits."""
    return "-" if value is None else f"{value:.3g}"
