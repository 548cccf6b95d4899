"""Watches whether all ranks of a job stand still, and says when that has lasted too long.

Used by `supervision`, which gives it the time, what the ranks use and what they write. What counts is decided in
`standstill`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from typing import Final, Optional

from horovod.runner.hangs.standstill import Standstill
from horovod.runner.job import Job
from horovod.runner.processes.vitals import Vitals

_EVERY_S: Final = 60.0
_MEASUREMENTS: Final = 10  # at least, within the limit
_LEAST_S: Final = 0.05
_REST_BYTES: Final = 1 << 12
# The stall report, which rank 0 repeats, is no sign of life.
_OF_A_STALL: Final = re.compile(
    rb"waited for more than .* for ranks that have not submitted |"
    rb" (has|have) not submitted: | gives? no answer \(stopped\?\)|^  \.\.\. and [0-9]+ more lines$"
)


def limit_of(job: Job) -> float:
    """How long all ranks may stand still, in seconds; 0: for ever. The default does not apply where the user has set
    another limit of waiting, has switched the stall check off or types for a rank, nor to a job of one rank."""
    settings = job.settings
    given = settings.given()
    if "hang_shutdown_s" in given:
        return float(settings.hang_shutdown_s)
    otherwise = "stall_shutdown_s" in given or settings.stall_check_disable or settings.stdin_rank is not None
    return 0.0 if otherwise or job.size == 1 else float(settings.hang_shutdown_s)


def watch_interval_s(limit_s: float) -> float:
    """The seconds between two measurements of the ranks; 0: there are none."""
    return max(_LEAST_S, min(_EVERY_S, limit_s / _MEASUREMENTS)) if limit_s else 0.0


def hang_watch(job: Job, now_s: float) -> Optional[HangWatch]:
    """The watch of a job; None: it may stand still for ever."""
    limit_s = limit_of(job)
    return HangWatch(limit_s, now_s, "hang_shutdown_s" not in job.settings.given()) if limit_s else None


class HangWatch:
    """See the head of the file.

    Args:
        limit_s: how long all ranks may stand still.
        now_s: the time.
        after_init: it is no limit for programs that never call hvd.init(), such as servers, which may be idle.
    """

    def __init__(self, limit_s: float, now_s: float, after_init: bool = False) -> None:
        self._limit_s = limit_s
        self._after_init = after_init
        self._every_s = watch_interval_s(limit_s)
        self._standstill = Standstill(limit_s, self._every_s)
        self._due_s = now_s + self._every_s
        self._rests: dict[tuple[int, str], bytes] = {}  # lines without an end
        self._judged: dict[tuple[int, str], bytes] = {}
        self._loud: set[int] = set()

    def next_s(self) -> float:
        """When `due` is true."""
        return self._due_s

    def due(self, now_s: float) -> bool:
        """The ranks are to be measured."""
        return now_s >= self._due_s

    def heard(self, rank: int, stream: str, data: bytes) -> None:
        """A rank has written these bytes."""
        lines = (self._rests.get((rank, stream), b"") + data).split(b"\n")
        self._rests[rank, stream] = lines.pop()[-_REST_BYTES:]
        if rank not in self._loud and any(line.strip() and not _OF_A_STALL.search(line) for line in lines):
            self._loud.add(rank)

    def why_to_end(
        self, vitals: Mapping[int, Optional[Vitals]], left: Set[int], now_s: float, nobody_met: bool = False
    ) -> str:
        """Why the job must end; empty: it goes on.

        Args:
            vitals: of the ranks, as far as they are known.
            left: ranks that have not ended.
            now_s: the time.
            nobody_met: no rank has called hvd.init().
        """
        self._due_s = now_s + self._every_s
        self._standstill.see(vitals, now_s)
        for key, rest in self._rests.items():
            if rest.strip() and rest != self._judged.get(key) and not _OF_A_STALL.search(rest):
                self._loud.add(key[0])  # dots, or a progress bar
            self._judged[key] = rest
        for rank in self._loud:
            self._standstill.lives(rank, now_s)
        self._loud.clear()
        may_last = self._after_init and nobody_met
        return _why(self._limit_s) if not may_last and self._standstill.lasts_too_long(left, now_s) else ""


def _why(limit_s: float) -> str:
    return (
        f"all ranks have stood still for {limit_s:g} s (no processor time, no input or output, no line written), so "
        "the job was ended. If it may stand still for longer, raise --hang-shutdown-time-seconds "
        "(HOROVOD_HANG_SHUTDOWN_TIME_SECONDS; 0 = never)."
    )
