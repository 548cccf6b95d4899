"""How the probes take times: contenders in turn, and device time without the host's.

Used by all probes that measure on a stream. A gate, a kernel that holds the stream, lets the host hand over all work
before the device begins: so the events around the work show what the device needs, not how fast it was fed.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Mapping
from typing import Any, Callable, TypeVar

import driver
import kernels

Sample = TypeVar("Sample")
Work = Callable[[], Any]
_LONGEST_GATE_S = 0.1


def alternated(
    contenders: Mapping[str, Work], measure: Callable[[Work], Sample], rounds: int, warm_up: int = 2
) -> dict[str, list[Sample]]:
    """A sample of each contender's work in turn, `rounds` times."""
    samples: dict[str, list[Sample]] = {name: [] for name in contenders}
    for turn in range(warm_up + rounds):
        for name, work in contenders.items():
            sample = measure(work)
            if turn >= warm_up:
                samples[name].append(sample)
    return samples


class Gate:
    """Measures work on a stream of its own behind a gate."""

    def __init__(self) -> None:
        self.stream = driver.stream()
        self._begin, self._end = driver.event(), driver.event()
        _, mailbox = driver.allocate_host(4096)
        self._hold_ns = ctypes.c_uint64(200_000)
        clock = driver.function(driver.load(kernels.CLOCKS), "stamp")
        self._hold = driver.Launch(clock, (1, 1), [ctypes.c_uint64(mailbox), self._hold_ns], self.stream)

    def measure(self, work: Work) -> tuple[float, float]:
        """Seconds of the host and of the device for the work.

        A gate that opened before the host had handed over everything is made longer, and all is done again.
        """
        while True:
            self._hold()
            driver.call("cuEventRecord", self._begin, self.stream)
            begin = time.perf_counter()
            work()
            host_s = time.perf_counter() - begin
            driver.call("cuEventRecord", self._end, self.stream)
            held = driver.bare("cuEventQuery")(self._begin) == driver.NOT_READY
            driver.call("cuStreamSynchronize", self.stream)
            if held or self._hold_ns.value > _LONGEST_GATE_S * 1e9:
                return host_s, driver.elapsed_s(self._begin, self._end)
            self._hold_ns.value *= 2
