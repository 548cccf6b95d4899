"""NCCL with one member: the price of a communicator and of a call, on the host and on the stream, before any code of
ours stands around it.

Run by `run_all`. With one member an allreduce in place has nothing to do and one out of place is a copy; with a factor
(PreMulSum) NCCL runs a kernel. So these are floors, not the speed of a reduction.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import threading
import time
from ctypes import byref, c_float, c_int, c_size_t, c_void_p
from pathlib import Path
from typing import Any, Callable

import driver
import libraries
import nccl
from table import Table, middle, number, quartiles, size_label, spread
from timing import Gate, alternated, per_call_s

sys.path.append(str(Path(__file__).resolve().parent.parent))
from ranks import resnet50  # noqa: E402 - the folder of the other benchmarks

_SIZES = (4, 1 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20, 256 << 20)
_LARGEST = max(_SIZES)
_US = 1e6


def parts() -> list[Callable[[], Table]]:
    """The tables."""
    driver.attach()
    alone = _Alone()
    return [
        alone.communicators,
        alone.sizes,
        alone.small_ones,
        alone.non_blocking,
        _ctypes_itself,
        _init_without_peer,
        alone.beside_torch,
    ]


def _ready(communicator: c_void_p) -> None:
    while (code := nccl.state(communicator)) == nccl.IN_PROGRESS:
        time.sleep(0.0002)
    if code:
        raise nccl.NcclError("ncclCommGetAsyncError", code)


def _timed(work: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


class _Alone:
    def __init__(self) -> None:
        self._gate = Gate()
        self._first: dict[str, float] = {}
        begin = time.perf_counter()
        nccl.opened()
        self._first["opening the library"] = time.perf_counter() - begin
        identity = nccl.UniqueId()
        self._first["ncclGetUniqueId, first"] = _timed(lambda: nccl.call("ncclGetUniqueId", byref(identity)))
        begin = time.perf_counter()
        self._communicator = nccl.join(1, identity, 0)
        self._first["ncclCommInitRank, first of the process"] = time.perf_counter() - begin
        self._source, self._target = driver.allocate(_LARGEST), driver.allocate(_LARGEST)
        driver.call("cuMemsetD8Async", self._source, 1, _LARGEST, self._gate.stream)
        self._factor = c_float(0.5)
        self._scaled = nccl.scaled_sum(self._factor, self._communicator)

    def communicators(self) -> Table:
        made = Table("NCCL, one member: communicators", ("step", "ms: median (quartiles)"))
        samples: dict[str, list[float]] = {name: [value] for name, value in self._first.items()}
        for _ in range(7):
            for name, value in {**_blocking_life(), **_non_blocking_life()}.items():
                samples.setdefault(name, []).append(value)
        for end in ("ncclCommDestroy", "ncclCommAbort"):
            samples[f"{end} of three, a thread for each"] = [_three_ends(end) for _ in range(3)]
        made.rows = [(name, spread(values, 1e3)) for name, values in samples.items()]
        made.figures = {name: quartiles(values) for name, values in samples.items()}
        return made

    def _reduce(self, operation: int, target: int, elems: int) -> Callable[[], None]:
        call = nccl.bare("ncclAllReduce")
        words = (self._source, target, c_size_t(elems), nccl.FLOAT32, operation, self._communicator, self._gate.stream)

        def run() -> None:
            if code := call(*words):
                raise nccl.NcclError("ncclAllReduce", code)

        return run

    def _copy(self, size_bytes: int) -> Callable[[], None]:
        call, words = driver.bare("cuMemcpyDtoDAsync_v2"), (self._target, self._source, size_bytes, self._gate.stream)
        return lambda: _success(call(*words))

    def sizes(self) -> Table:
        names = ("sum in place", "sum out of place", "average in place", "PreMulSum in place", "PreMulSum out of place")
        columns = ("size", *[f"{name}: host us, stream us" for name in names], "copy: host us, stream us")
        made = Table("NCCL, one member: ncclAllReduce of float32, per call", columns)
        for size in _SIZES:
            elems, calls = size // 4, 40 if size <= 1 << 20 else 8
            here, there = self._source, self._target
            operations = ((nccl.SUM, here), (nccl.SUM, there), (nccl.AVERAGE, here), (self._scaled, here))
            works = [self._reduce(*operation, elems) for operation in (*operations, (self._scaled, there))]
            contenders = dict(zip(names, works))
            contenders["copy"] = self._copy(size)
            measure = functools.partial(self._gate.measure, calls=calls)
            samples = alternated(contenders, measure, 15)
            texts = [f"{spread([s[0] for s in v], _US)}, {spread([s[1] for s in v], _US)}" for v in samples.values()]
            made.rows.append((size_label(size), *texts))
            made.figures[size_label(size)] = {
                name: {"host_s": quartiles([s[0] for s in v]), "stream_s": quartiles([s[1] for s in v])}
                for name, v in samples.items()
            }
        made.note = "Calls go through ctypes. Stream: the time between events, per call of a row of calls."
        return made

    def small_ones(self) -> Table:
        sizes = resnet50.gradient_sizes(small_only=True)
        in_place = [self._reduce(self._scaled, self._source, size) for size in sizes]
        away = [self._reduce(nccl.SUM, self._target, size) for size in sizes]

        def grouped(works: list[Callable[[], None]]) -> Callable[[], None]:
            def run() -> None:
                nccl.call("ncclGroupStart")
                for work in works:
                    work()
                nccl.call("ncclGroupEnd")

            return run

        contenders = {
            "115 calls, PreMulSum": lambda: [work() for work in in_place],
            "115 calls, sum out of place": lambda: [work() for work in away],
            "a group of 115, PreMulSum": grouped(in_place),
            "a group of 115, sum out of place": grouped(away),
            "one call of all bytes, PreMulSum": self._reduce(self._scaled, self._source, sum(sizes)),
        }
        samples = alternated(contenders, self._gate.measure, 15)
        title = "NCCL, one member: the 115 gradients of ResNet-50 up to 64 KB (0.66 MB)"
        made = Table(title, ("how", "host us", "stream us"))
        for name, values in samples.items():
            made.rows.append((name, spread([s[0] for s in values], _US), spread([s[1] for s in values], _US)))
            made.figures[name] = [quartiles([s[k] for s in values]) for k in (0, 1)]
        return made

    def non_blocking(self) -> Table:
        """What the library avoids: with several members NCCL gives each launch to a thread of its own there."""
        other, settings = c_void_p(), nccl.config(blocking=False)
        nccl.bare("ncclCommInitRankConfig")(byref(other), 1, nccl.unique_id(), 0, byref(settings))
        _ready(other)
        start, end, reduce = (nccl.bare(name) for name in ("ncclGroupStart", "ncclGroupEnd", "ncclAllReduce"))
        stream = self._gate.stream

        def group(communicator: c_void_p, size: int, is_settled: bool) -> Callable[[], None]:
            def run() -> None:
                start()
                reduce(self._source, self._target, c_size_t(size // 4), nccl.FLOAT32, nccl.SUM, communicator, stream)
                end()
                while is_settled and nccl.state(communicator) == nccl.IN_PROGRESS:
                    pass

            return run

        made = Table(
            "NCCL, one member: the host's time for a group of one ncclAllReduce",
            ("size", "blocking, us", "not blocking, until it is on the stream, us", "ratio"),
        )
        for size in (4, 1 << 20):
            contenders = {
                "blocking": group(self._communicator, size, is_settled=False),
                "not blocking": group(other, size, is_settled=True),
            }
            samples = alternated(contenders, functools.partial(per_call_s, calls=100), 15)
            ratio = middle(samples["not blocking"]) / middle(samples["blocking"])
            made.rows.append((size_label(size), *[spread(values, _US) for values in samples.values()], number(ratio)))
            made.figures[size_label(size)] = {name: quartiles(values) for name, values in samples.items()}
        nccl.call("ncclCommAbort", other)
        return made

    def beside_torch(self) -> Table:
        torch, dist = _torch_distributed()
        dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1, device_id=torch.device("cuda:0"))
        made = Table(
            "NCCL, one member: the host's time for one call, beside torch.distributed",
            ("size", "ours through ctypes, in place, us", "torch.distributed, us", "the same, async_op, us", "ratio"),
        )
        for size in (4, 1 << 20, 64 << 20):
            tensor = torch.ones(size // 4, device="cuda")
            contenders = {
                "ctypes": self._reduce(nccl.SUM, self._source, size // 4),
                "torch": lambda t=tensor: dist.all_reduce(t),
                "torch async": lambda t=tensor: dist.all_reduce(t, async_op=True),
            }
            samples = alternated(contenders, functools.partial(per_call_s, calls=100), 15)
            torch.cuda.synchronize()
            ratio = middle(samples["torch"]) / middle(samples["ctypes"])
            made.rows.append((size_label(size), *[spread(v, _US) for v in samples.values()], number(ratio)))
            made.figures[size_label(size)] = {name: quartiles(v) for name, v in samples.items()}
        dist.destroy_process_group()
        return made


def _torch_distributed() -> tuple[Any, Any]:
    try:
        import torch
        import torch.distributed as dist
    except ImportError as error:
        raise libraries.Missing(f"torch: {error}") from error
    if not dist.is_nccl_available() or not torch.cuda.is_available():
        raise libraries.Missing("torch.distributed with NCCL")
    return torch, dist


def _success(code: int) -> None:
    if code:
        raise driver.CudaError("a copy", code)


def _blocking_life() -> dict[str, float]:
    identity, made = nccl.UniqueId(), c_void_p()
    times = {"ncclGetUniqueId": _timed(lambda: nccl.call("ncclGetUniqueId", byref(identity)))}
    times["ncclCommInitRank"] = _timed(lambda: nccl.call("ncclCommInitRank", byref(made), 1, identity, 0))
    times["ncclCommDestroy"] = _timed(lambda: nccl.call("ncclCommDestroy", made))
    return times


def _non_blocking_life() -> dict[str, float]:
    identity, made, settings = nccl.unique_id(), c_void_p(), nccl.config(blocking=False)
    begin = time.perf_counter()
    code = nccl.bare("ncclCommInitRankConfig")(byref(made), 1, identity, 0, byref(settings))
    times = {f"ncclCommInitRankConfig, non-blocking, until it returns {code}": time.perf_counter() - begin}
    _ready(made)
    times["the same until the communicator is ready"] = time.perf_counter() - begin
    times["ncclCommAbort"] = _timed(lambda: nccl.call("ncclCommAbort", made))
    return times


def _three_ends(name: str) -> float:
    """Whether communicators can end side by side."""
    made = [nccl.join(1, nccl.unique_id(), 0) for _ in range(3)]
    threads = [threading.Thread(target=nccl.call, args=(name, communicator)) for communicator in made]

    def end() -> None:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return _timed(end)


def _init_without_peer() -> Table:
    """A second member never comes: does abort get this one out, and how soon?"""
    made = Table("NCCL: a member that never comes", ("step", "ms: median (quartiles)"))
    samples: dict[str, list[float]] = {}
    for _ in range(5):
        identity, communicator, settings = nccl.unique_id(), c_void_p(), nccl.config(blocking=False)
        begin = time.perf_counter()
        code = nccl.bare("ncclCommInitRankConfig")(byref(communicator), 2, identity, 0, byref(settings))
        returned = time.perf_counter() - begin
        time.sleep(0.3)
        waiting = nccl.state(communicator)
        aborted = _timed(lambda made=communicator: nccl.call("ncclCommAbort", made))
        samples.setdefault(f"ncclCommInitRankConfig of 2, non-blocking, returns {code}", []).append(returned)
        samples.setdefault(f"ncclCommAbort 300 ms later, state {waiting}", []).append(aborted)
    made.rows = [(name, spread(values, 1e3)) for name, values in samples.items()]
    made.figures = {name: quartiles(values) for name, values in samples.items()}
    return made


def _ctypes_itself() -> Table:
    """What calling through ctypes adds to every host time of these tables."""
    absolute = ctypes.CFUNCTYPE(c_int, c_int)(("abs", ctypes.CDLL(None)))
    six = ctypes.CFUNCTYPE(c_int, c_int, *[c_void_p] * 6)(("abs", ctypes.CDLL(None)))
    version, context = c_int(), c_void_p()
    ask, current = driver.bare("cuDriverGetVersion"), driver.bare("cuCtxGetCurrent")
    contenders = {
        "an empty Python function": lambda: None,
        "libc's abs": lambda: absolute(1),
        "libc's abs with 7 arguments": lambda: six(1, 2, 3, 4, 5, 6, 7),
        "cuDriverGetVersion": lambda: ask(byref(version)),
        "cuCtxGetCurrent": lambda: current(byref(context)),
        "ncclGetVersion": lambda: nccl.bare("ncclGetVersion")(byref(version)),
    }
    samples = alternated(contenders, functools.partial(per_call_s, calls=5000), 15)
    made = Table("What ctypes costs", ("call", "us per call"))
    made.rows = [(name, spread(values, _US)) for name, values in samples.items()]
    made.figures = {name: quartiles(values) for name, values in samples.items()}
    return made
