"""From the device being done to a host thread going on: which way is fast, which costs no processor time, and what each
costs the stream.

Run by `run_all`. A kernel holds the stream for a while and then notes the device's clock as its last act; the thread
that waits notes the host's when it goes on. The rung of a host function is `sem_post`, so no Python runs in it.
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading
import time
from ctypes import byref, c_uint64, c_void_p
from typing import Callable

import driver
import libraries
from clocks import Clocks, Mailbox, between
from table import Table, middle, number, quartiles, spread
from timing import Gate, alternated, per_call_s

_SAMPLES, _GROUP = 60, 10
_SIGN = 256  # index of the 32-bit word that streams write and wait for
_GEQ = 0


class _Semaphore:
    """POSIX's: rung by C code alone, waited for in the kernel."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None)
        self._memory = ctypes.create_string_buffer(64)
        self.address = ctypes.addressof(self._memory)
        self.ring = ctypes.cast(self._libc.sem_post, c_void_p)
        self._wait = ctypes.CFUNCTYPE(ctypes.c_int, c_void_p)(("sem_wait", self._libc))
        self.value = memoryview((ctypes.c_uint32 * 2).from_address(self.address)).cast("B").cast("I")
        self._libc.sem_init(c_void_p(self.address), 0, 0)

    def wait(self) -> None:
        while self._wait(self.address):
            pass

    def post(self) -> None:
        self._libc.sem_post(c_void_p(self.address))


def parts() -> list[Callable[[], Table]]:
    """The tables."""
    completion = _Completion(driver.attach())
    made: list[Callable[[], Table]] = [lambda: completion.waits(200), lambda: completion.waits(10_000)]
    made += [completion.starts, completion.gaps, completion.host_costs, completion.foreign_thread]
    return [*made, lambda: completion.host_wake(0.0002), lambda: completion.host_wake(0.01)]


class _Completion:
    def __init__(self, context: c_void_p) -> None:
        self._context = context
        self._stream, self._side = driver.stream(), driver.stream()
        self._clocks = Clocks(self._stream)
        self._box = Mailbox()
        self._hold = c_uint64(0)
        words = [c_uint64(self._box.there), self._hold]
        self._stamp = driver.Launch(self._clocks.stamp_kernel, (1, 1), words, self._stream)
        self._semaphore = _Semaphore()
        self._spun, self._slept = (
            driver.event(driver.EVENT_DISABLE_TIMING),
            driver.event(driver.EVENT_DISABLE_TIMING | driver.EVENT_BLOCKING_SYNC),
        )
        self._bell = os.eventfd(0) if hasattr(os, "eventfd") else -1
        self._python_ring = ctypes.CFUNCTYPE(None, c_void_p)(lambda _: os.eventfd_write(self._bell, 1))

    # What a way does after the kernel was launched, and how its thread waits.

    def _kernels_word(self) -> None:
        while not self._box.stamps[1]:
            pass

    def _written_word(self) -> None:
        driver.call("cuStreamWriteValue32_v2", self._stream, self._box.there + 4 * _SIGN, 1, 0)
        while not self._box.words[_SIGN]:
            pass

    def _query(self) -> None:
        driver.call("cuEventRecord", self._spun, self._stream)
        ask = driver.bare("cuEventQuery")
        while ask(self._spun) == driver.NOT_READY:
            pass

    def _synchronize(self, event: c_void_p) -> None:
        driver.call("cuEventRecord", event, self._stream)
        driver.call("cuEventSynchronize", event)

    def _ring(self) -> None:
        driver.call("cuLaunchHostFunc", self._stream, self._semaphore.ring, self._semaphore.address)

    def _rung(self) -> None:
        self._ring()
        self._semaphore.wait()

    def _rung_spinning(self) -> None:
        # The value of glibc's semaphore is its first word; taken back afterwards without sleeping.
        self._ring()
        while not self._semaphore.value[0]:
            pass
        self._semaphore.wait()

    def _to_side(self) -> None:
        driver.call("cuEventRecord", self._spun, self._stream)
        driver.call("cuStreamWaitEvent", self._side, self._spun, 0)

    def _side_ring(self) -> None:
        self._to_side()
        driver.call("cuLaunchHostFunc", self._side, self._semaphore.ring, self._semaphore.address)

    def _rung_on_side(self) -> None:
        self._side_ring()
        self._semaphore.wait()

    def _side_write(self) -> None:
        self._to_side()
        driver.call("cuStreamWriteValue32_v2", self._side, self._box.there + 4 * _SIGN, 1, 0)

    def _written_on_side(self) -> None:
        self._side_write()
        while not self._box.words[_SIGN]:
            pass

    def _rung_by_python(self) -> None:
        driver.call("cuLaunchHostFunc", self._stream, ctypes.cast(self._python_ring, c_void_p), None)
        os.eventfd_read(self._bell)

    def _ways(self) -> dict[str, Callable[[], None]]:
        ways = {
            "spinning on a word that the kernel writes (the floor)": self._kernels_word,
            "spinning on a word of cuStreamWriteValue32": self._written_word,
            "the same on another stream, ordered by an event": self._written_on_side,
            "cuEventQuery in a loop": self._query,
            "cuEventSynchronize": lambda: self._synchronize(self._spun),
            "cuEventSynchronize, BLOCKING_SYNC": lambda: self._synchronize(self._slept),
            "cuStreamSynchronize": lambda: driver.call("cuStreamSynchronize", self._stream),
            "cuLaunchHostFunc(sem_post), spinning on the semaphore": self._rung_spinning,
            "cuLaunchHostFunc(sem_post), sleeping in sem_wait": self._rung,
            "the same, rung on another stream, ordered by an event": self._rung_on_side,
        }
        if self._bell >= 0:
            ways["cuLaunchHostFunc(a Python function), sleeping in read(eventfd)"] = self._rung_by_python
        return ways

    def waits(self, hold_us: int) -> Table:
        title = f"From the end of a kernel of {hold_us} us to a waiting thread going on"
        made = Table(title, ("way", "us: median (quartiles)", "of the floor", "processor time of the wait, share"))
        late: dict[str, list[float]] = {}
        busy: dict[str, list[float]] = {}
        ways = self._ways()
        for _ in range(_SAMPLES // _GROUP):
            seen = []
            before = self._clocks.host_minus_device_ns()
            for _ in range(_GROUP):
                for name, wait in ways.items():
                    seen.append((name, *self._wait_once(wait, hold_us)))
            after = self._clocks.host_minus_device_ns()
            for name, woken, ended, share in seen:
                late.setdefault(name, []).append((woken - ended - between(before, after, woken)) / 1e3)
                busy.setdefault(name, []).append(share)
        floor = middle(late[next(iter(late))])
        for name, values in late.items():
            more = f"+ {number(middle(values) - floor)} us"
            made.rows.append((name, spread(values), more, number(middle(busy[name]))))
            made.figures[name] = {"late_us": quartiles(values), "busy": middle(busy[name])}
        made.note = (
            f"The clocks are set by exchanges of {number(middle(self._clocks.exchange_ns) / 1e3)} us; half of that is "
            "the error of all figures in common, not of their differences. The device's clock steps by "
            f"{self._clocks.step_ns} ns. Processor time: of the waiting thread."
        )
        return made

    def _wait_once(self, wait: Callable[[], None], hold_us: int) -> tuple[int, int, float]:
        """When the host went on, when the kernel ended, and the share of processor time."""
        self._box.clear()
        self._hold.value = hold_us * 1000
        self._stamp()
        begin, used = time.perf_counter_ns(), time.thread_time_ns()
        wait()
        woken = time.perf_counter_ns()
        share = (time.thread_time_ns() - used) / max(woken - begin, 1)
        driver.call("cuStreamSynchronize", self._stream)
        driver.call("cuStreamSynchronize", self._side)
        return woken, self._box.stamps[1], share

    def starts(self) -> Table:
        """The other way round: the host lets the device go on."""
        made = Table("From the host's word to a kernel beginning", ("way", "us: median (quartiles)"))
        samples: dict[str, list[float]] = {}
        self._hold.value = 1000
        for _ in range(_SAMPLES // _GROUP):
            seen = []
            before = self._clocks.host_minus_device_ns()
            for _ in range(_GROUP):
                for name, go in {"cuLaunchKernel": self._launch_now, "cuStreamWaitValue32": self._release}.items():
                    self._box.clear()
                    told = go()
                    driver.call("cuStreamSynchronize", self._stream)
                    seen.append((name, told, self._box.stamps[0]))
            after = self._clocks.host_minus_device_ns()
            for name, told, began in seen:
                samples.setdefault(name, []).append((began + between(before, after, told) - told) / 1e3)
        made.rows = [(name, spread(values)) for name, values in samples.items()]
        made.figures = {name: quartiles(values) for name, values in samples.items()}
        made.note = "cuLaunchKernel: from before the call, on an idle stream."
        return made

    def _launch_now(self) -> int:
        told = time.perf_counter_ns()
        self._stamp()
        return told

    def _release(self) -> int:
        driver.call("cuStreamWaitValue32_v2", self._stream, self._box.there + 4 * _SIGN, 1, _GEQ)
        self._stamp()
        time.sleep(0.001)
        told = time.perf_counter_ns()
        self._box.words[_SIGN] = 1
        return told

    def gaps(self) -> Table:
        """How long the stream stands still for what lies between two kernels."""
        second = Mailbox()
        words = [c_uint64(second.there), c_uint64(1000)]
        after = driver.Launch(self._clocks.stamp_kernel, (1, 1), words, self._stream)
        other, timed = driver.stream(), driver.event()
        contenders: dict[str, Callable[[], None]] = {"nothing": lambda: None}
        contenders["cuEventRecord, no timing"] = lambda: driver.call("cuEventRecord", self._spun, self._stream)
        contenders["cuEventRecord, timing"] = lambda: driver.call("cuEventRecord", timed, self._stream)
        contenders["cuStreamWriteValue32"] = lambda: driver.call(
            "cuStreamWriteValue32_v2", self._stream, self._box.there + 4 * _SIGN, 1, 0
        )
        contenders["cuLaunchHostFunc(sem_post)"] = self._ring
        contenders["cuLaunchHostFunc(sem_post) on another stream"] = self._side_ring
        contenders["cuStreamWriteValue32 on another stream"] = self._side_write

        def through_other() -> None:
            driver.call("cuEventRecord", self._spun, self._stream)
            driver.call("cuStreamWaitEvent", other, self._spun, 0)
            driver.call("cuEventRecord", self._slept, other)
            driver.call("cuStreamWaitEvent", self._stream, self._slept, 0)

        contenders["events to another stream and back"] = through_other

        def gap(between: Callable[[], None]) -> float:
            self._hold.value = 300_000
            self._stamp()
            between()
            after()
            driver.call("cuStreamSynchronize", self._stream)
            driver.call("cuStreamSynchronize", self._side)
            return (second.stamps[0] - self._box.stamps[1]) / 1e3

        samples = alternated(contenders, gap, 50)
        while self._semaphore.value[0]:
            self._semaphore.wait()
        made = Table("From the end of a kernel to the begin of the next on the stream", ("between", "us"))
        made.rows = [(name, spread(values)) for name, values in samples.items()]
        made.figures = {name: quartiles(values) for name, values in samples.items()}
        return made

    def host_costs(self) -> Table:
        """What the calls cost the thread that makes them, on a stream that is held."""
        gate = Gate()
        stream, other, timed = gate.stream, driver.stream(), driver.event()
        driver.call("cuEventRecord", self._slept, other)
        ring, at = self._semaphore.ring, self._semaphore.address
        plain = {
            "cuEventRecord, no timing": ("cuEventRecord", self._spun, stream),
            "cuEventRecord, timing": ("cuEventRecord", timed, stream),
            "cuStreamWaitEvent": ("cuStreamWaitEvent", stream, self._slept, 0),
            "cuLaunchHostFunc(sem_post)": ("cuLaunchHostFunc", stream, ring, at),
            "cuStreamWriteValue32": ("cuStreamWriteValue32_v2", stream, self._box.there + 4 * _SIGN, 1, 0),
        }
        calls = {name: functools.partial(driver.bare(words[0]), *words[1:]) for name, words in plain.items()}
        samples = alternated(calls, lambda work: gate.measure(work, 50)[0], 31)
        capturing = ctypes.c_int()
        others: dict[str, Callable[[], object]] = {
            "cuEventQuery of one that happened": functools.partial(driver.bare("cuEventQuery"), self._slept),
            "cuStreamIsCapturing": functools.partial(driver.bare("cuStreamIsCapturing"), stream, byref(capturing)),
            "an event made and destroyed": _event_life,
            "cuCtxSetCurrent": functools.partial(driver.bare("cuCtxSetCurrent"), self._context),
        }
        samples.update(alternated(others, functools.partial(per_call_s, calls=50), 31))
        while self._semaphore.value[0]:
            self._semaphore.wait()
        made = Table("The host's time of single calls, through ctypes", ("call", "us"))
        made.rows = [(name, spread(values, 1e6)) for name, values in samples.items()]
        made.figures = {name: quartiles(values) for name, values in samples.items()}
        if self._bell < 0:
            made.note = str(libraries.Missing("os.eventfd, of Python 3.10"))
        return made

    def foreign_thread(self) -> Table:
        """What a thread may call in which no context is current."""
        made = Table("Calls from a thread without a current context", ("call", "code"))
        answers: dict[str, int] = {}
        stream = self._stream

        def ask() -> None:
            answers["cuEventRecord"] = driver.bare("cuEventRecord")(self._spun, stream)
            answers["cuStreamWaitEvent"] = driver.bare("cuStreamWaitEvent")(stream, self._spun, 0)
            answers["cuEventQuery"] = driver.bare("cuEventQuery")(self._spun)
            answers["cuStreamQuery"] = driver.bare("cuStreamQuery")(stream)
            answers["cuLaunchHostFunc"] = driver.bare("cuLaunchHostFunc")(
                stream, self._semaphore.ring, self._semaphore.address
            )
            answers["cuStreamWriteValue32"] = driver.bare("cuStreamWriteValue32_v2")(stream, self._box.there, 1, 0)
            copy = driver.bare("cuMemcpyDtoDAsync_v2")
            answers["cuMemcpyDtoDAsync"] = copy(self._box.there, self._box.there + 512, 64, stream)
            try:
                self._stamp()
                answers["cuLaunchKernel"] = 0
            except driver.CudaError as error:
                answers["cuLaunchKernel"] = error.code
            answers["cuEventCreate"] = driver.bare("cuEventCreate")(byref(c_void_p()), driver.EVENT_DISABLE_TIMING)

        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
        driver.call("cuStreamSynchronize", stream)
        while self._semaphore.value[0]:
            self._semaphore.wait()
        made.rows = [(name, str(code)) for name, code in answers.items()]
        made.figures = dict(answers)
        return made

    def host_wake(self, asleep_s: float) -> Table:
        """Without a GPU: what it takes on this machine to wake a thread that sleeps on a futex."""
        title = f"A thread that slept {asleep_s * 1e3:g} ms is woken by sem_post of another thread"
        samples = []
        for _ in range(_SAMPLES):
            told: list[int] = []

            def ring(told: list[int] = told) -> None:
                end = time.perf_counter() + asleep_s
                # Spinning without the interpreter lock for most of the time: sleep(0) gives it up.
                while time.perf_counter() < end:
                    time.sleep(0)
                told.append(time.perf_counter_ns())
                self._semaphore.post()

            thread = threading.Thread(target=ring)
            thread.start()
            self._semaphore.wait()
            woken = time.perf_counter_ns()
            thread.join()
            samples.append((woken - told[0]) / 1e3)
        return Table(title, ("us: median (quartiles)",), [(spread(samples),)], figures={"us": quartiles(samples)})


def _event_life() -> None:
    driver.call("cuEventDestroy_v2", driver.event(driver.EVENT_DISABLE_TIMING))
