"""One of two processes that share a GPU and a piece of host memory; `probe_staging` asks."""

from __future__ import annotations

import ctypes
import mmap
import time
from typing import Any, Callable

import driver

_DEVICE_BYTES = 256 << 20
_IN_FLIGHT = 4
_ranks: list[Rank] = []  # the one of this process


class Rank:
    """A rank with device memory, pinned and plain memory of its own, and the shared memory."""

    def __init__(self, shared: str) -> None:
        driver.attach()
        self._up, self._down = driver.stream(), driver.stream()
        self._device = driver.allocate(_DEVICE_BYTES)
        with open(shared, "r+b") as file:
            memory = mmap.mmap(file.fileno(), 0)
        self._size = size = len(memory)
        mapped = {"shared": memory, "plain": mmap.mmap(-1, size)}
        self._views = {name: (ctypes.c_ubyte * size).from_buffer(each) for name, each in mapped.items()}
        self._host = {name: ctypes.addressof(view) for name, view in self._views.items()}
        for address in self._host.values():
            ctypes.memset(address, 1, size)  # all pages are touched
        self._host["pinned"] = driver.allocate_host(size)[0]
        driver.call("cuMemHostRegister_v2", self._host["shared"], size, driver.HOST_PORTABLE)

    def rate(self, direction: str, memory: str, piece_bytes: int, seconds: float) -> float:
        """Bytes per second of copies between device and a host memory: down (to the host), up, or both at once."""
        host = self._host[memory]
        steps: list[Callable[[], None]] = []
        if direction in ("down", "both"):
            steps.append(lambda: driver.call("cuMemcpyDtoHAsync_v2", host, self._device, piece_bytes, self._down))
        if direction in ("up", "both"):
            # The other half, so that one direction does not read what the other writes.
            half, far = self._device + _DEVICE_BYTES // 2, host + self._size // 2
            steps.append(lambda: driver.call("cuMemcpyHtoDAsync_v2", half, far, piece_bytes, self._up))
        moved, begin = 0, time.perf_counter()
        while time.perf_counter() - begin < seconds:
            for _ in range(_IN_FLIGHT):
                for step in steps:
                    step()
                    moved += piece_bytes
            driver.call("cuStreamSynchronize", self._down)
            driver.call("cuStreamSynchronize", self._up)
        return moved / (time.perf_counter() - begin)

    def copy_times(self, times: int, size_bytes: int) -> list[float]:
        """Seconds of a copy to shared memory, from the call to the end of the stream."""
        taken = []
        for _ in range(times):
            begin = time.perf_counter()
            driver.call("cuMemcpyDtoHAsync_v2", self._host["shared"], self._device, size_bytes, self._down)
            driver.call("cuStreamSynchronize", self._down)
            taken.append(time.perf_counter() - begin)
        return taken


def begin(shared: str) -> None:
    """Makes the rank of this process, with the shared memory behind this path."""
    _ranks.append(Rank(shared))


def call(name: str, *words: Any) -> Any:
    """Calls a method of it."""
    return getattr(_ranks[0], name)(*words)
