"""One row for each rank of a job: what it did between two readings of its figures. Pure.

Used by the summary, the status and the endpoint for metrics.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, Optional

from horovod.runner.live.figures import Figures, Reading

_COUNTED = tuple(
    name
    for name in Figures._fields
    if name.endswith("_ns") or name in ("batches", "tensors", "steps", "stalls", "errors", "resets", "commits")
)


class Row(NamedTuple):
    """A rank in a period.

    Attributes:
        number: under which it was started.
        rank: in an elastic job its present one; else the number: a program may divide its ranks into several worlds
            (`hvd.init(comm=[...])`), each of which has a rank 0.
        host, pid, epoch: which.
        seconds: length of the period.
        waiting, transferring, pending, processor: shares of the period; `processor` counts cores, so it may be above 1.
        steps: that have ended in the period.
        tensors, batches, nbytes: that were dealt with in it.
        in_flight: at its end.
        total: the figures at its end.
    """

    number: int
    rank: int
    host: str
    pid: int
    epoch: int
    seconds: float
    waiting: float
    transferring: float
    pending: float
    processor: float
    steps: int
    tensors: int
    batches: int
    nbytes: int
    in_flight: int
    total: Figures

    @property
    def computing(self) -> float:
        """The share that is left: the program's own."""
        return max(0.0, 1.0 - self.waiting - self.transferring)

    def per_second(self, count: float) -> float:
        """A rate in the period."""
        return count / self.seconds if self.seconds > 0 else 0.0


def rows(
    newer: Mapping[int, Reading],
    older: Mapping[int, Reading],
    hosts: Mapping[int, str],
    left: Optional[Collection[int]] = None,
    elastic: bool = False,
) -> list[Row]:
    """The rows of a job, by rank.

    Args:
        newer: readings by the number under which a rank was started.
        older: of before; of what is not in it the period began with its first `init`.
        hosts: by that number, where the readings name none.
        left: the numbers of those that run; None: all of `newer`, as at the end of a job.
        elastic: ranks change.
    """
    found = []
    for number, reading in newer.items():
        if left is not None and number not in left:
            continue
        row = _row(number, reading, older.get(number))
        found.append(row._replace(host=row.host or hosts.get(number, "")))
    if not elastic:
        return sorted(found, key=lambda row: row.number)
    # A rank that was lost, and replaced, has counted for an earlier epoch.
    epoch = max((row.epoch for row in found), default=0)
    current = [row._replace(rank=row.total.rank) for row in found if row.epoch == epoch]
    return sorted(current, key=lambda row: (row.rank, row.number))


def earlier(
    older: Mapping[int, Reading], newer: Mapping[int, Reading], latest: Mapping[int, Reading]
) -> dict[int, Reading]:
    """What to compare the latest readings with: those before them, or, where nothing has been read in between, as an
    agent may have posted nothing, those before these.

    Args:
        older, newer, latest: three successive sets.
    """
    kept = {number for number in newer if number in latest and newer[number].figures == latest[number].figures}
    return {number: older.get(number, newer[number]) if number in kept else newer[number] for number in newer}


def _row(number: int, reading: Reading, before: Optional[Reading]) -> Row:
    total = reading.figures
    period = total
    if before is not None and _is_earlier(before.figures, total):
        period = _difference(total, before.figures)
    seconds = period.wall_ns / 1e9

    def share(ns: int) -> float:
        return min(1.0, ns / period.wall_ns) if period.wall_ns > 0 else 0.0

    return Row(
        number=number,
        rank=number,
        host=reading.host,
        pid=total.pid,
        epoch=total.epoch,
        seconds=seconds,
        waiting=share(period.waiting_ns),
        transferring=share(period.transfer_ns),
        pending=share(period.pending_ns),
        processor=period.processor_ns / period.wall_ns if period.wall_ns > 0 else 0.0,
        steps=period.steps,
        tensors=period.tensors,
        batches=period.batches,
        nbytes=period.bytes,
        in_flight=total.in_flight,
        total=total,
    )


def _is_earlier(before: Figures, now: Figures) -> bool:
    """It is of the same process, so that their difference means something."""
    return before.pid == now.pid and before.wall_ns < now.wall_ns


def _difference(now: Figures, before: Figures) -> Figures:
    counted: dict[str, Any] = {name: max(0, getattr(now, name) - getattr(before, name)) for name in _COUNTED}
    operations = tuple(
        (max(0, tensors - was[0]), max(0, nbytes - was[1]))
        for (tensors, nbytes), was in zip(now.operations, before.operations)
    )
    return now._replace(**counted, operations=operations)
