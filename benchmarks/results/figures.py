"""From the JSON of a run to what a picture shows: shares, curves and bars. Pure.

Used by `plots` and `text`. Of several runs the median counts, as in the report.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Optional

from harness.shares import TABLE_SIZES, Share

_STEP = "ResNet-50 gradients, one step"
_LOOP = "training loop"
_PLAIN, _WRAPPED = " plain", " wrapped"


@dataclass(frozen=True)
class Shares:
    """Shares of the best peer's speed, of the collectives in the report's table."""

    shares: list[Share]

    @property
    def title(self) -> str:
        return "share of the best peer"

    def panels(self) -> dict[int, dict[str, list[Share]]]:
        """Number of ranks, then operation, to the shares from small to large."""
        made: dict[int, dict[str, list[Share]]] = {}
        for one in sorted(self.shares, key=lambda one: (one.ranks, one.size_bytes)):
            made.setdefault(one.ranks, {}).setdefault(one.operation, []).append(one)
        return made


@dataclass(frozen=True)
class Curves:
    """Speed against size.

    Attributes:
        operation, ranks: measured.
        lines: label to (bytes, bytes per second), from small to large.
    """

    operation: str
    ranks: int
    lines: dict[str, list[tuple[int, float]]]

    @property
    def title(self) -> str:
        return f"{self.operation}, {self.ranks} ranks"


@dataclass(frozen=True)
class Bars:
    """One value for each label, in `unit`; `note`: what the values do not say."""

    title: str
    unit: str
    values: dict[str, float]
    note: str = ""


def median_s(report: dict[str, Any], row: str, label: str) -> Optional[float]:
    """Median over the runs of an entry's p50; None = nobody measured it."""
    found = [
        entry["p50_s"]
        for run in report["runs"]
        for one in run
        if one["name"] == row
        for entry in one["entries"]
        if entry["label"] == label and entry["p50_s"] is not None
    ]
    return statistics.median(found) if found else None


def all_shares(report: dict[str, Any]) -> list[Share]:
    """Of every row that has one."""
    return [Share(**one) for one in report["shares"]]


def shares(report: dict[str, Any]) -> Optional[Shares]:
    """Those that the report's table shows."""
    shown = [one for one in all_shares(report) if one.operation and one.size_bytes in TABLE_SIZES]
    return Shares(shown) if shown else None


def curves(report: dict[str, Any]) -> list[Curves]:
    """One for each operation and number of ranks, in the order of the report."""
    made: dict[tuple[str, int], dict[str, dict[int, float]]] = {}
    for row in _rows(report):
        if not row.get("operation"):
            continue
        # A tensor that lives in shared memory is one more line in the picture of its operation.
        operation = row["operation"].partition(",")[0]
        lines = made.setdefault((operation, row["ranks"]), {})
        for entry in row["entries"]:
            seconds = median_s(report, row["name"], entry["label"])
            if seconds and entry["kind"] != "info":
                lines.setdefault(entry["label"], {})[row["size_bytes"]] = row["size_bytes"] / seconds
    return [
        Curves(operation, ranks, {label: sorted(points.items()) for label, points in lines.items()})
        for (operation, ranks), lines in made.items()
        if lines
    ]


def step(report: dict[str, Any]) -> Optional[Bars]:
    """The gradients of ResNet-50: milliseconds of each contender, the fastest first."""
    values = _entries_ms(report, [row for row in _rows(report) if row["name"] == _STEP], ("ours", "peer", "info"))
    return Bars(_STEP, "ms", dict(sorted(values.items(), key=lambda item: item[1]))) if values else None


def scaling(report: dict[str, Any]) -> Optional[Bars]:
    """Training: the share of the plain loop's speed that each library keeps, in percent."""
    values: dict[str, float] = {}
    ranks = 2
    for row in _rows(report):
        if row["name"].startswith(_LOOP):
            ranks = row["ranks"]
            for entry in row["entries"]:
                job = entry["label"].removesuffix(_WRAPPED)
                wrapped = median_s(report, row["name"], job + _WRAPPED)
                plain = median_s(report, row["name"], job + _PLAIN)
                if entry["label"].endswith(_WRAPPED) and wrapped and plain:
                    values[job] = 100 * plain / wrapped
    return Bars(f"ResNet-50-shaped training loop, {ranks} ranks", "% of the plain loop", values) if values else None


def faults(cells: list[dict[str, Any]]) -> Optional[Bars]:
    """Worst time from a fault until the last rank had raised, for each cell of benchmarks/faults.py."""
    values = {
        cell["name"]: 1e3 * seconds
        for cell in cells
        # Infinity: some rank never raised. That is a broken promise and no length of a bar.
        if (seconds := cell["worst_raised_s"]) is not None and math.isfinite(seconds)
    }
    broken = sum(len(cell["complaints"]) for cell in cells)
    runs = sum(cell["runs"] for cell in cells)
    note = f"{runs} runs; broken promises: {broken or 'none'}. Launcher: until every process was gone."
    title = "from a fault to the error on the last rank, worst"
    return Bars(title, "ms", values, note) if values else None


def _rows(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of all runs, each name once."""
    return list({row["name"]: row for run in reversed(report["runs"]) for row in run}.values())


def _entries_ms(report: dict[str, Any], rows: Iterable[dict[str, Any]], kinds: tuple[str, ...]) -> dict[str, float]:
    return {
        entry["label"]: 1e3 * seconds
        for row in rows
        for entry in row["entries"]
        if entry["kind"] in kinds and (seconds := median_s(report, row["name"], entry["label"]))
    }
