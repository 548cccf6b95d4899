"""Lets all ranks of a job begin an iteration at the same instant, whatever library they measure.

Used by `tasks`. The ranks meet in a small mapped file, owed to none of the contenders, and
leave it when the shared monotonic clock reaches an agreed time; so a measured time holds no waiting for a rank that
came later. It measures nothing itself.
"""

from __future__ import annotations

import mmap
import os
import time

# Words of 8 bytes, one cache line apart: one per rank, then the agreed start in nanoseconds.
_STRIDE = 8
_LEAD_NS = 3000
_SPINS_BEFORE_YIELD = 2000
_PATIENCE_NS = 120 * 10**9


class Gate:
    """A meeting place of `size` processes of one host.

    Args:
        path: a file that all ranks name alike; made by whoever comes first.
        rank: of this process.
        size: how many meet.
        crowded: there are more ranks than cores: give the core away while waiting.
    """

    def __init__(self, path: str, rank: int, size: int, crowded: bool) -> None:
        length = (size + 1) * _STRIDE * 8
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        if os.fstat(descriptor).st_size < length:
            os.ftruncate(descriptor, length)
        self._words = memoryview(mmap.mmap(descriptor, length)).cast("q")
        os.close(descriptor)
        self._rank = rank
        self._size = size
        self._spins = 0 if crowded else _SPINS_BEFORE_YIELD
        self._turn = 0
        self._last_start = 0

    def pass_through(self) -> int:
        """Returns at the same nanosecond (give or take a tenth of a microsecond) on all ranks that have a core.

        Returns:
            When it began, in nanoseconds of `time.perf_counter_ns`. In a crowd the instant agreed on: a rank that gets
            its core later has been waiting for it since then.

        Raises:
            TimeoutError: a rank did not come within two minutes.
        """
        words, turn, place = self._words, self._turn + 1, self._size * _STRIDE
        self._turn = turn
        words[self._rank * _STRIDE] = turn
        if self._rank == 0:
            for other in range(1, self._size):
                self._wait_above(other * _STRIDE, turn - 1)
            words[place] = time.perf_counter_ns() + _LEAD_NS
        start = self._wait_above(place, self._last_start)
        self._last_start = start
        while (now := time.perf_counter_ns()) < start:
            pass
        return now if self._spins else start

    def _wait_above(self, place: int, value: int) -> int:
        words, spins, deadline = self._words, 0, 0
        while (seen := words[place]) <= value:
            spins += 1
            if spins > self._spins:
                os.sched_yield()
                now = time.perf_counter_ns()
                deadline = deadline or now + _PATIENCE_NS
                if now > deadline:
                    raise TimeoutError(f"rank {self._rank} waited two minutes at the gate for another rank")
        return int(seen)
