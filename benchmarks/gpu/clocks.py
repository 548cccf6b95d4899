"""The device's clock and the host's: what one reads when the other reads this.

Used by `probe_completion`. A kernel answers each word of the host with the device's clock; of many exchanges the
shortest bound the difference to about half their length. Clocks drift, so it is taken before and after
every group of samples.
"""

from __future__ import annotations

import ctypes
import math
import time
from ctypes import c_uint32, c_uint64, c_void_p

import driver
import kernels
from table import middle

_ROUNDS = 400
_BEST = 20


class Mailbox:
    """Pinned host memory that both see: 64-bit words for stamps, 32-bit words for signs."""

    def __init__(self) -> None:
        self.here, self.there = driver.allocate_host(4096)
        self.stamps = memoryview((c_uint64 * 512).from_address(self.here)).cast("B").cast("Q")
        self.words = memoryview((c_uint32 * 1024).from_address(self.here)).cast("B").cast("I")

    def clear(self) -> None:
        """Zero everywhere."""
        ctypes.memset(self.here, 0, 4096)


class Clocks:
    """Both clocks, on a stream."""

    def __init__(self, stream: c_void_p) -> None:
        self._stream, self._mailbox = stream, Mailbox()
        module = driver.load(kernels.CLOCKS)
        self.stamp_kernel = driver.function(module, "stamp")
        words = [c_uint64(self._mailbox.there), c_uint32(_ROUNDS)]
        self._answer = driver.Launch(driver.function(module, "answer"), (1, 1), words, stream)
        self.exchange_ns: list[float] = []
        self.step_ns = 0

    def host_minus_device_ns(self) -> tuple[int, int]:
        """When it was asked, and what to add then to the device's clock to have `time.perf_counter_ns`."""
        self._mailbox.clear()
        self._answer()
        words, stamps, clock = self._mailbox.words, self._mailbox.stamps, time.perf_counter_ns
        seen = []
        for turn in range(1, _ROUNDS + 1):
            before = clock()
            words[0] = turn
            while words[32] != turn:
                if clock() - before > 3_000_000_000:
                    raise RuntimeError("the device does not answer")
            after = clock()
            self.step_ns = math.gcd(self.step_ns, stamps[8])
            seen.append((after - before, (before + after) // 2 - stamps[8]))
        driver.call("cuStreamSynchronize", self._stream)
        best = sorted(seen)[:_BEST]
        self.exchange_ns.append(middle([length for length, _ in best]))
        return clock(), int(middle([difference for _, difference in best]))


def between(before: tuple[int, int], after: tuple[int, int], host_ns: int) -> int:
    """The difference at a time between two settings of the clocks: they drift by some 10 us a second."""
    share = (host_ns - before[0]) / (after[0] - before[0])
    return round(before[1] + share * (after[1] - before[1]))
