"""Draws figures as SVG with Matplotlib. The same figures give the same bytes: no date, no random names inside.

Used by `results_page`, which imports this only when there is something to draw.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
from harness.row import size_label
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from results.figures import Bars, Curves, Shares

# A colour for each contender, the same in every picture; from a set that colour-blind people can tell apart.
_COLOURS = {"ours": "#0072b2", "torch gloo": "#d55e00", "openmpi": "#009e73", "mpich": "#cc79a7", "copy": "#999999"}
_OTHER = "#e69f00"
_OPERATIONS = {
    "allreduce": "#0072b2",
    "broadcast": "#d55e00",
    "allgather": "#009e73",
    "alltoall": "#cc79a7",
    "reducescatter": "#e69f00",
}
_STYLE = {
    "svg.hashsalt": "results",  # names of things inside the file
    "svg.fonttype": "none",  # text stays text: small, and searchable
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.alpha": 0.3,
}


def draw_shares(shares: Shares, path: Path) -> None:
    """A panel for each number of ranks, a line for each operation, with the intervals; the best peer is at 1."""
    with mpl.rc_context(_STYLE):
        panels = shares.panels()
        figure = Figure(figsize=(1.0 + 3.2 * len(panels), 4.0), layout="constrained")
        figure.suptitle("speed / that of the fastest peer of the same run")
        row = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axes, (ranks, lines) in zip(row, panels.items()):
            axes.set_title(f"{ranks} ranks")
            axes.axhline(1.0, color="#444444", linewidth=1.0)
            for operation, cells in lines.items():
                low = [one.median - (one.median if one.low is None else one.low) for one in cells]
                high = [(one.median if one.high is None else one.high) - one.median for one in cells]
                axes.errorbar(
                    [one.size_bytes for one in cells],
                    [one.median for one in cells],
                    (low, high),
                    label=operation,
                    color=_OPERATIONS.get(operation, "#56b4e9"),
                    linewidth=1.4,
                    elinewidth=0.8,
                    marker="o",
                    markersize=4,
                )
            axes.set_yscale("log", base=2)
            axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share:g}"))
            _size_axis(axes, {one.size_bytes for cells in lines.values() for one in cells})
        figure.legend(*row[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
        _save(figure, path)


def draw_curves(curves: Curves, path: Path) -> None:
    """Speed against size, both logarithmic."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(6.4, 4.0), layout="constrained")
        axes = figure.add_subplot(title=curves.title, xlabel="tensor", ylabel="GB/s (tensor / time)")
        for name, points in curves.lines.items():
            sizes, speeds = zip(*points)
            limit = name.startswith("copy")
            axes.plot(
                sizes,
                [speed / 1e9 for speed in speeds],
                label=name,
                color=_colour(name),
                linestyle="--" if limit or "resident" in name else "-",
                linewidth=2.4 if name.startswith("ours") else 1.4,
                marker="" if limit else "o",
                markersize=4,
            )
        axes.set_yscale("log")
        _size_axis(axes, {size for points in curves.lines.values() for size, _ in points})
        axes.yaxis.set_major_formatter(FuncFormatter(lambda speed, _: f"{speed:g}"))
        axes.legend(frameon=False)
        _save(figure, path)


def draw_bars(bars: Bars, path: Path) -> None:
    """A bar for each label, the first on top."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(6.4, 1.0 + 0.32 * len(bars.values)), layout="constrained")
        axes = figure.add_subplot(title=bars.title, xlabel=bars.unit)
        names = list(bars.values)
        drawn = axes.barh(names, [bars.values[name] for name in names], color=[_colour(name) for name in names])
        axes.bar_label(drawn, fmt="%.3g", padding=3)
        axes.margins(x=0.12)
        axes.grid(visible=False, axis="y")
        axes.invert_yaxis()
        _save(figure, path)


def _size_axis(axes: Axes, sizes: set[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted(sizes))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: size_label(int(size))))
    axes.tick_params(axis="x", rotation=30)
    axes.minorticks_off()


def _colour(name: str) -> str:
    return next((colour for begin, colour in _COLOURS.items() if name.startswith(begin)), _OTHER)


def _save(figure: Figure, path: Path) -> None:
    figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
