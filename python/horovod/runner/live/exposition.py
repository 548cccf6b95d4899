"""A job's figures as Prometheus has them: families of samples, with labels that say which rank. Pure.

They are rank and host, in elastic jobs also worker. No two series have the same labels: Prometheus would refuse the
whole answer.

`showing.endpoint` hands them to `prometheus_client`. deploy/grafana and docs/monitoring.md use these names; a test
compares them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Callable, Final, NamedTuple, Optional

from horovod.runner.live.figures import KINDS
from horovod.runner.live.straggler import Straggler
from horovod.runner.live.table import Row

_LABELS: Final = ("rank", "host")


class Family(NamedTuple):
    """One metric.

    Attributes:
        name: without the suffix that counters have.
        kind: "counter" or "gauge".
        help: one sentence.
        labels: names of the labels.
        samples: values of the labels, and the value.
    """

    name: str
    kind: str
    help: str
    labels: tuple[str, ...]
    samples: tuple[tuple[tuple[str, ...], float], ...]


_Value = Callable[[Row], float]
# fmt: off
_PER_RANK: Final[tuple[tuple[str, str, str, _Value], ...]] = (
    ("horovod_batches", "counter", "Batches of tensors that have been moved.", lambda row: row.total.batches),
    ("horovod_steps", "counter", "Training steps.", lambda row: row.total.steps),
    ("horovod_running_seconds", "counter", "Seconds between hvd.init() and hvd.shutdown(), of all engines.",
     lambda row: row.total.wall_ns / 1e9),
    ("horovod_waiting_seconds", "counter", "Seconds in which the program waited in Horovod for other ranks.",
     lambda row: row.total.waiting_ns / 1e9),
    ("horovod_transferring_seconds", "counter", "Seconds in which the program waited in Horovod while a batch ran.",
     lambda row: row.total.transfer_ns / 1e9),
    ("horovod_pending_seconds", "counter", "Seconds in which submitted tensors waited for other ranks.",
     lambda row: row.total.pending_ns / 1e9),
    ("horovod_processor_seconds", "counter", "Seconds of processors that the process has used.",
     lambda row: row.total.processor_ns / 1e9),
    ("horovod_resets", "counter", "Resets of the elastic state.", lambda row: row.total.resets),
    ("horovod_commits", "counter", "Commits of the elastic state.", lambda row: row.total.commits),
    ("horovod_stalls", "counter", "Reports of operations that wait too long.", lambda row: row.total.stalls),
    ("horovod_errors", "counter", "Operations that failed.", lambda row: row.total.errors),
    ("horovod_tensors_in_flight", "gauge", "Tensors that were submitted and are not done.",
     lambda row: row.total.in_flight),
    ("horovod_epoch", "gauge", "Epoch of an elastic job.", lambda row: row.total.epoch),
)
# fmt: on


def families(rows: Sequence[Row], found: Optional[Straggler], elastic: bool = False) -> list[Family]:
    """The metrics of a job.

    Args:
        rows: of the ranks that run.
        found: the slowest of them, since the question before.
        elastic: a worker may change its rank, and two may have one rank for a moment; their numbers become labels.
    """
    names = (*_LABELS, *(["worker"] if elastic else []))

    def place(row: Row) -> tuple[str, ...]:
        return (str(row.rank), row.host, *([str(row.number)] if elastic else []))

    made = [Family("horovod_ranks", "gauge", "Ranks that have connected and run.", (), (((), float(len(rows))),))]
    for name, kind, text, value in _PER_RANK:
        samples = tuple((place(row), float(value(row))) for row in rows)
        made.append(Family(name, kind, text, names, samples))
    for at, name, text in ((0, "horovod_tensors", "Tensors of this rank."), (1, "horovod_bytes", "Bytes of them.")):
        volumes = tuple(((*place(row), kind), float(pair[at])) for row in rows for kind, pair in _kinds(row).items())
        made.append(Family(name, "counter", text, (*names, "operation"), volumes))
    slowest = tuple((place(row), 1.0) for row in rows if found and row.number == found.number)
    text = "1 for the rank that the others wait for; absent while there is none."
    made.append(Family("horovod_straggler", "gauge", text, names, slowest))
    return made


def _kinds(row: Row) -> dict[str, tuple[int, int]]:
    return {kind: pair for kind, pair in zip(KINDS, row.total.operations) if pair[0]}
