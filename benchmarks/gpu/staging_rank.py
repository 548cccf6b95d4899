"""One of two processes that share a GPU and a piece of host memory; `probe_staging` asks, `peer` serves."""

from __future__ import annotations

import ctypes
import mmap
import time
from ctypes import byref, c_uint64, c_void_p
from typing import Any, Callable

import driver
from driver import IpcHandle

_DEVICE_BYTES = 256 << 20
_IN_FLIGHT = 4


class Rank:
    """A rank with device memory, pinned and plain memory of its own, and the shared memory."""

    def __init__(self) -> None:
        driver.attach()
        self._up, self._down = driver.stream(), driver.stream()
        self._device = driver.allocate(_DEVICE_BYTES)
        self._host: dict[str, int] = {}
        self._keep: list[Any] = []
        self._opened = 0

    def map(self, descriptor: int, size_bytes: int) -> None:
        """Maps the shared memory and makes the others of the same size; all pages are touched."""
        self._size = size_bytes
        for name, mapped in (("shared", mmap.mmap(descriptor, size_bytes)), ("plain", mmap.mmap(-1, size_bytes))):
            view = (ctypes.c_ubyte * size_bytes).from_buffer(mapped)
            self._keep.append(view)
            self._host[name] = ctypes.addressof(view)
            ctypes.memset(self._host[name], 1, size_bytes)
        self._host["pinned"] = driver.allocate_host(size_bytes)[0]

    def register(self, size_bytes: int, times: int) -> list[tuple[float, float]]:
        """Seconds of registering, and of unregistering."""
        taken = []
        for _ in range(times):
            begin = time.perf_counter()
            driver.call("cuMemHostRegister_v2", self._host["shared"], size_bytes, driver.HOST_PORTABLE)
            middle = time.perf_counter()
            driver.call("cuMemHostUnregister", self._host["shared"])
            taken.append((middle - begin, time.perf_counter() - middle))
        return taken

    def register_fresh(self, size_bytes: int) -> float:
        """Seconds of registering memory that nobody has touched."""
        fresh = mmap.mmap(-1, size_bytes)
        view = (ctypes.c_ubyte * size_bytes).from_buffer(fresh)
        begin = time.perf_counter()
        driver.call("cuMemHostRegister_v2", ctypes.addressof(view), size_bytes, driver.HOST_PORTABLE)
        taken = time.perf_counter() - begin
        driver.call("cuMemHostUnregister", ctypes.addressof(view))
        return taken

    def keep_registered(self) -> None:
        """The shared memory stays registered."""
        driver.call("cuMemHostRegister_v2", self._host["shared"], self._size, driver.HOST_PORTABLE)

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
        return self._repeat(steps, piece_bytes, seconds)

    def device_rate(self, whose: str, piece_bytes: int, seconds: float) -> float:
        """Bytes per second of copies into our device memory, from there ("own") or from the other's."""
        source = self._device + _DEVICE_BYTES // 2 if whose == "own" else self._opened
        words = (self._device, source, piece_bytes, self._down)
        return self._repeat([lambda: driver.call("cuMemcpyDtoDAsync_v2", *words)], piece_bytes, seconds)

    def host_rate(self, piece_bytes: int, seconds: float) -> float:
        """Bytes per second of the processor's copies from the shared memory into plain memory, one thread."""
        return self._repeat(
            [lambda: ctypes.memmove(self._host["plain"], self._host["shared"], piece_bytes)], piece_bytes, seconds
        )

    def _repeat(self, steps: list[Callable[[], Any]], piece_bytes: int, seconds: float) -> float:
        moved, begin = 0, time.perf_counter()
        while time.perf_counter() - begin < seconds:
            for _ in range(_IN_FLIGHT):
                for step in steps:
                    step()
                    moved += piece_bytes
            driver.call("cuStreamSynchronize", self._down)
            driver.call("cuStreamSynchronize", self._up)
        return moved / (time.perf_counter() - begin)

    def export_memory(self) -> tuple[str, float]:
        """A handle for our device memory, and what making it took; the memory gets a pattern."""
        driver.call("cuMemsetD8Async", self._device, 0x5A, _DEVICE_BYTES, self._down)
        driver.call("cuStreamSynchronize", self._down)
        handle, begin = IpcHandle(), time.perf_counter()
        driver.call("cuIpcGetMemHandle", byref(handle), self._device)
        return bytes(handle.bytes).hex(), time.perf_counter() - begin

    def open_memory(self, handle: str, times: int) -> list[float]:
        """Opens the other's memory so many times and leaves it open; seconds of each opening."""
        taken = []
        for turn in range(times):
            address, begin = c_uint64(), time.perf_counter()
            known = IpcHandle.from_buffer_copy(bytes.fromhex(handle))
            driver.call("cuIpcOpenMemHandle_v2", byref(address), known, driver.IPC_LAZY_ENABLE_PEER_ACCESS)
            taken.append(time.perf_counter() - begin)
            self._opened = address.value
            if turn + 1 < times:
                driver.call("cuIpcCloseMemHandle", address)
        return taken

    def foreign_bytes_right(self) -> bool:
        """Whether the pattern comes through."""
        host = ctypes.create_string_buffer(4096)
        driver.call("cuMemcpyDtoH_v2", ctypes.addressof(host), self._opened + _DEVICE_BYTES - 4096, 4096)
        return host.raw == b"\x5a" * 4096

    def export_event(self) -> str:
        """A handle for an event of ours, recorded behind some copies."""
        self._event = driver.event(driver.EVENT_INTERPROCESS | driver.EVENT_DISABLE_TIMING)
        handle = IpcHandle()
        driver.call("cuIpcGetEventHandle", byref(handle), self._event)
        return bytes(handle.bytes).hex()

    def copy_and_record(self, copies: int) -> None:
        """Work on our stream, then the event; does not wait."""
        self._hold_stream(copies)
        driver.call("cuEventRecord", self._event, self._down)

    def open_event(self, handle: str) -> None:
        """Opens the other's event."""
        self._other_event = c_void_p()
        driver.call("cuIpcOpenEventHandle", byref(self._other_event), IpcHandle.from_buffer_copy(bytes.fromhex(handle)))

    def write_word(self, value: int, copies: int) -> None:
        """Our stream writes a word of the shared, registered memory after some copies; does not wait."""
        self._hold_stream(copies)
        driver.call("cuStreamWriteValue32_v2", self._down, self._word_there(), value, 0)

    def see_word(self, value: int) -> float:
        """Spins until the word is there; seconds."""
        word, begin = ctypes.c_uint32.from_address(self._host["shared"]), time.perf_counter()
        while word.value != value:
            if time.perf_counter() - begin > 5:
                raise RuntimeError(f"the word is {word.value}, not {value}")
        return time.perf_counter() - begin

    def wait_word(self, value: int) -> int:
        """Our stream waits for the word; does not wait itself, but tells the stream's state a little later."""
        driver.call("cuStreamWaitValue32_v2", self._down, self._word_there(), value, 0)
        time.sleep(0.01)
        return driver.bare("cuStreamQuery")(self._down)

    def ring_times(self, times: int) -> list[float]:
        """Seconds from the call by which our stream writes a word to our processor seeing it, stream idle before."""
        # A word of another page: two ranks do this at the same time.
        at, there = self._host["pinned"], c_uint64()
        driver.call("cuMemHostGetDevicePointer_v2", byref(there), at, 0)
        word, taken = ctypes.c_uint32.from_address(at), []
        for value in range(1, times + 1):
            begin = time.perf_counter()
            driver.call("cuStreamWriteValue32_v2", self._down, there, value, 0)
            while word.value != value:
                pass
            taken.append(time.perf_counter() - begin)
        return taken

    def copy_times(self, times: int, size_bytes: int) -> list[float]:
        """Seconds of a copy to shared memory, from the call to the end of the stream."""
        taken = []
        for _ in range(times):
            begin = time.perf_counter()
            driver.call("cuMemcpyDtoHAsync_v2", self._host["shared"], self._device, size_bytes, self._down)
            driver.call("cuStreamSynchronize", self._down)
            taken.append(time.perf_counter() - begin)
        return taken

    def set_word(self, value: int) -> None:
        """The processor writes the word."""
        ctypes.c_uint32.from_address(self._host["shared"]).value = value

    def finish(self) -> None:
        """Waits for our stream."""
        driver.call("cuStreamSynchronize", self._down)

    def _word_there(self) -> int:
        there = c_uint64()
        driver.call("cuMemHostGetDevicePointer_v2", byref(there), self._host["shared"], 0)
        return there.value

    def _hold_stream(self, copies: int) -> None:
        half = self._device + _DEVICE_BYTES // 2
        for _ in range(copies):
            driver.call("cuMemcpyDtoDAsync_v2", self._device, half, _DEVICE_BYTES // 2, self._down)

    def wait_for_other(self) -> tuple[int, float]:
        """Our stream waits for the other's event: its state before, and seconds until our stream is done."""
        begin = time.perf_counter()
        before = driver.bare("cuEventQuery")(self._other_event)
        driver.call("cuStreamWaitEvent", self._down, self._other_event, 0)
        driver.call("cuStreamSynchronize", self._down)
        return before, time.perf_counter() - begin
