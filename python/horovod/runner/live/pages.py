"""What users read of a job's figures: the lines at its end, and the screen of `horovodrun --status`. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Optional

from horovod.runner.live.advice import advice
from horovod.runner.live.straggler import Straggler, sentence, straggler
from horovod.runner.live.table import Row

_MOST_ROWS: Final = 16  # at the end of a job
_LONGEST: Final = 60  # of a text in a column


def closing_lines(rows: Sequence[Row]) -> list[str]:
    """Where the time of a job's ranks went, which rank was the slowest, and advice; nothing where nothing was done.

    Args:
        rows: of all ranks, over their whole lives.
    """
    if not any(row.tensors for row in rows):
        return []
    shown = rows if len(rows) <= _MOST_ROWS else _extremes(rows)
    several_hosts = len({row.host for row in rows}) > 1
    lines = []
    for row in shown:
        where = f" on {row.host}" if several_hosts and row.host else ""
        lines.append(
            f"rank {row.rank}{where}: computing {_percent(row.computing)}, waiting for others {_percent(row.waiting)}, "
            f"transferring {_percent(row.transferring)} of {row.seconds:.1f} s{_steps(row)}"
        )
    if len(shown) < len(rows):
        lines.append(f"{len(rows) - len(shown)} ranks in between are not shown")
    found = straggler(rows)
    return [*lines, *([sentence(found)] if found else []), *advice(rows, found)]


def _extremes(rows: Sequence[Row]) -> list[Row]:
    """Those that wait least, and those that wait most."""
    by_waiting = sorted(rows, key=lambda row: row.waiting)
    half = _MOST_ROWS // 2
    return [*by_waiting[:half], *by_waiting[-half:]]


def screen(job: Mapping[str, Any], rows: Sequence[Row], width: int = 120) -> list[str]:
    """The lines of one job for `--status`.

    Args:
        job: what its launcher says of it.
        rows: of the ranks that have connected.
        width: of the terminal; longer lines are cut.
    """
    head = f"job {job['pid']}: {job['command']}"
    about = f"{job['size']} ranks, {_duration(job['seconds'])}"
    if job["elastic"]:
        epochs = {row.epoch for row in rows}
        about += f", elastic{', epoch ' + str(max(epochs)) if epochs else ''}"
    lines = [head[:width], about]
    if not rows:
        return [*lines, "no rank has called hvd.init() yet"]
    if len(rows) < job["size"]:
        lines.append(f"{len(rows)} of {job['size']} ranks are connected")
    titles = ("rank", "host", "pid", "steps", "steps/s", "computing", "waiting", "transfer", "bytes/s", "in flight")
    cells = [titles, *(_cells(row) for row in rows)]
    widths = [max(len(line[at]) for line in cells) for at in range(len(titles))]
    for line in cells:
        text = "  ".join(each.ljust(widths[at]) if at == 1 else each.rjust(widths[at]) for at, each in enumerate(line))
        lines.append(text.rstrip()[:width])
    found = straggler(rows)
    if found:
        lines.append(sentence(found))
    for row in rows:
        if row.total.errors:
            lines.append(f"rank {row.rank}: {_errors(row.total.errors)}{row.total.last_error}"[:width])
    return lines


def as_data(job: Mapping[str, Any], rows: Sequence[Row]) -> dict[str, Any]:
    """The same for programs: shares are between 0 and 1."""
    return {
        **job,
        "ranks": [_row_as_data(row) for row in rows],
        "straggler": _straggler_as_data(straggler(rows)),
        "advice": advice(rows, straggler(rows)),
    }


def _row_as_data(row: Row) -> dict[str, Any]:
    total = row.total
    return {
        "rank": row.rank,
        "host": row.host,
        "pid": row.pid,
        "epoch": row.epoch,
        "period_seconds": round(row.seconds, 3),
        "steps": total.steps,
        "steps_per_second": round(row.per_second(row.steps), 3),
        "computing": round(row.computing, 4),
        "waiting": round(row.waiting, 4),
        "transferring": round(row.transferring, 4),
        "pending": round(row.pending, 4),
        "processor_cores": round(row.processor, 3),
        "bytes_per_second": round(row.per_second(row.nbytes), 1),
        "in_flight": row.in_flight,
        "resets": total.resets,
        "commits": total.commits,
        "stalls": total.stalls,
        "errors": total.errors,
        "last_error": total.last_error,
    }


def _straggler_as_data(found: Optional[Straggler]) -> Optional[dict[str, Any]]:
    if found is None:
        return None
    return {
        "rank": found.rank,
        "host": found.host,
        "waiting": round(found.waiting, 4),
        "others_waiting": round(found.others, 4),
        "clear": found.clear,
        "why": sentence(found),
    }


def _cells(row: Row) -> tuple[str, ...]:
    return (
        str(row.rank),
        row.host[:_LONGEST],
        str(row.pid),
        str(row.total.steps),
        f"{row.per_second(row.steps):.1f}",
        _percent(row.computing),
        _percent(row.waiting),
        _percent(row.transferring),
        _amount(row.per_second(row.nbytes)),
        str(row.in_flight),
    )


def _errors(count: int) -> str:
    return "1 error: " if count == 1 else f"{count} errors; the last: "


def _steps(row: Row) -> str:
    return f", {row.per_second(row.steps):.1f} steps/s" if row.steps else ""


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _amount(count: float) -> str:
    for unit, factor in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count:.0f}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
