"""The report of a benchmark run: Markdown for people, JSON for programs.

Used by `run_all`. Every number stands beside its ratio to the best peer of the same run; targets are said to be met
or missed; what is missing, void or wrong is said with the reason.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness.contest import Entry
from harness.row import Check, Row, merged, merged_checks, middle
from harness.shares import MEANING, Share, share, table

_UNITS = {"us": 1e6, "ms": 1e3, "s": 1.0}


@dataclass(frozen=True)
class About:
    """What a reader must know beside the figures.

    Attributes:
        setting: lines on how it was measured.
        machine: lines on its state.
        date: of the measurement.
        revision: of the checkout.
    """

    setting: Sequence[str]
    machine: Sequence[str]
    date: str
    revision: str


def markdown(runs: Sequence[Sequence[Row]], about: About) -> str:
    """The whole report.

    Args:
        runs: rows of each run.
        about: the head.
    """
    lines = [
        "# Benchmarks",
        "",
        f"- {about.date}, revision {about.revision}",
        *[f"- {line}" for line in about.setting],
        "",
        "## The machine",
        "",
        *[f"- {line}" for line in about.machine],
    ]
    rows = merged(runs)
    lines += ["", "## Targets", "", *_target_table(rows)]
    shares = _shares(rows)
    slower = [f"- {one}" for one in shares if one.slower] or ["None."]
    lines += ["", "## Share of the best peer", "", MEANING, "", *table(shares)]
    lines += ["", "## Rows slower than the best peer", "", *slower]
    lines += ["", "## Times", "", "Slowest rank of each iteration, median over the runs of p50 (p99; best).", ""]
    for _, same in rows:
        lines += _times(same)
    return "\n".join(lines) + "\n"


def as_json(runs: Sequence[Sequence[Row]], about: About) -> str:
    """The same for programs; times in seconds, null where there is none."""
    shares = [asdict(one) for one in _shares(merged(runs))]
    rows = [[_row(row) for row in run] for run in runs]
    return json.dumps({**asdict(about), "shares": shares, "runs": rows}, indent=1)


def write(folder: Path, runs: Sequence[Sequence[Row]], about: About) -> str:
    """Writes report.md and report.json into a folder; the Markdown."""
    folder.mkdir(parents=True, exist_ok=True)
    text = markdown(runs, about)
    (folder / "report.md").write_text(text)
    (folder / "report.json").write_text(as_json(runs, about))
    return text


def _target_table(rows: Sequence[tuple[Row, list[Row]]]) -> list[str]:
    lines = ["| row | target | measured (each run) | |", "|---|---|---|---|"]
    for row, same in rows:
        for check, values in merged_checks(same):
            verdict = {None: "no verdict", True: "met", False: "**MISSED**"}[check.met]
            each = ", ".join(_plain(value) for value in values)
            shown = (
                f"{_plain(check.value)}{check.unit and ' ' + check.unit} ({each})"
                if len(values) > 1
                else _with_unit(check)
            )
            lines.append(f"| {row.name} | {check.what} | {shown} | {verdict} |")
    return lines


def _shares(rows: Sequence[tuple[Row, list[Row]]]) -> list[Share]:
    return [found for _, same in rows if (found := share(same))]


def _times(same: Sequence[Row]) -> list[str]:
    first = same[0]
    lines = [f"### {first.name}", ""]
    if first.note:
        lines += [first.note, ""]
    if not first.entries:
        return lines
    scale = _UNITS[first.unit]
    lines += [f"| contender | {first.unit}: p50 (p99; best) | samples | best peer / this |", "|---|---|---|---|"]
    for entry in first.entries:
        twins = [found for row in same for found in row.entries if found.label == entry.label]
        valid = [twin for twin in twins if not math.isnan(twin.median)]
        if not valid:
            lines.append(f"| {entry.label} | {twins[0].void or 'nothing measured'} | | |")
            continue
        p50, p99, best = (middle([twin.quantile(share) for twin in valid]) * scale for share in (0.5, 0.99, 0.0))
        ratios = [_ratio_to_peer(row, entry.label) for row in same]
        void = "".join(f"; run {number + 1}: {twin.void}" for number, twin in enumerate(twins) if twin.void)
        count = sum(len(twin.samples) for twin in valid)
        lines.append(
            f"| {entry.label} | {_number(p50)} ({_number(p99)}; {_number(best)}){void} | {count} | {_list(ratios)} |"
        )
    return [*lines, ""]


def _ratio_to_peer(row: Row, label: str) -> float:
    peer = row.best_peer()
    return peer.median / row.median(label) if peer else math.nan


def _number(value: float) -> str:
    """Three or four digits, never an exponent."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _plain(value: float) -> str:
    return "-" if math.isnan(value) else _number(value)


def _with_unit(check: Check) -> str:
    return f"{_plain(check.value)} {check.unit}".strip()


def _list(values: Sequence[float]) -> str:
    return ", ".join(_plain(value) for value in values)


def _row(row: Row) -> dict[str, Any]:
    checks = [
        {"what": c.what, "value": _finite(c.value), "limit": _finite(c.limit), "unit": c.unit, "met": c.met}
        for c in row.checks
    ]
    return {
        "name": row.name,
        "operation": row.operation,
        "size_bytes": row.size_bytes,
        "ranks": row.ranks,
        "unit": row.unit,
        "note": row.note,
        "entries": [_entry(entry) for entry in row.entries],
        "checks": checks,
    }


def _finite(value: float) -> float | None:
    """JSON knows neither nan nor infinity."""
    return value if math.isfinite(value) else None


def _entry(entry: Entry) -> dict[str, Any]:
    return {
        "label": entry.label,
        "kind": entry.kind,
        "void": entry.void,
        "p50_s": _finite(entry.median),
        "p99_s": _finite(entry.quantile(0.99)),
        "best_s": _finite(entry.quantile(0)),
        "samples": len(entry.samples),
        "slice_medians_s": [sorted(part)[len(part) // 2] for part in entry.slices],
    }
