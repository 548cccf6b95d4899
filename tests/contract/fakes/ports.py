"""The smaller doors of the fake engine: dumps, and what may be changed while the job runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from horovod._core.errors import InvalidArgumentError


class Job(Protocol):
    """What all ranks share."""

    parameters: dict[str, float]


class FakeDumps:
    """Nobody asks, and nothing hangs."""

    def text(self) -> str:
        return '{"pending": [], "untold": 0, "finished": [], "process_sets": {}}'

    def call_fd(self) -> int:
        return -1

    def on_signal(self, number: int) -> bool:
        return False


class FakeTuning:
    """One rank's; what rank 0 changes is in force at once."""

    def __init__(self, job: Job, rank: int) -> None:
        self._job = job
        self._rank = rank

    def parameters(self) -> dict[str, float]:
        return dict(self._job.parameters)

    def await_steps(self, steps: int, timeout_s: float) -> tuple[int, int, float]:
        raise InvalidArgumentError("await_steps: this engine counts no steps.")

    def set_parameters(self, values: Mapping[str, float]) -> None:
        if self._rank != 0:
            raise InvalidArgumentError(f"parameters: rank {self._rank} cannot change them; let rank 0 do it.")
        if not 0 <= values["cycle_time_ms"] < 1e7 or values["fusion_threshold_bytes"] < 0:
            raise InvalidArgumentError(f"parameters: {values} cannot be.")
        self._job.parameters = dict(values)
