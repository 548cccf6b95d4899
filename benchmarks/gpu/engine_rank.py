"""The ranks of `probe_engine`: operations of the engine on arrays of the GPU beside the same by the libraries alone.

Without a framework: arrays are those of the contract suite. Two ranks share the GPU and are members of NCCL
communicators all the same (`other_gpu`, NCCL_HOSTID), one of the engine's and one of our own. Over the fake driver and
the fake NCCL (HVD_TEST_CUDA_LIBRARY, HOROVOD_NCCL_PATH) the same runs, and its times mean nothing.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from ctypes import c_float, c_int, c_size_t, c_uint, c_void_p
from pathlib import Path
from typing import Any, Callable, NamedTuple

import job
import libraries
import other_gpu
from table import middle, number, size_label, spread

_ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(_ROOT / "tests" / "contract"), str(_ROOT / "tests"), str(_ROOT / "benchmarks")]
# Fewer of both for a look at whether it runs.
_LARGEST = int(os.environ.get("HVD_PROBE_LARGEST", 100 << 20))
ROUNDS = int(os.environ.get("HVD_PROBE_ROUNDS", "15"))
_SIZES = [size for size in (4, 64 << 10, 1 << 20, 16 << 20) if size <= _LARGEST]
_STAGED_SIZES = [size for size in (64 << 10, 1 << 20, 16 << 20, 100 << 20) if size <= _LARGEST]
_wrong: list[str] = []


def _judge(what: str, right: bool) -> str:
    """A word for the table; a wrong result is the program's failure, too."""
    if not right:
        _wrong.append(what)
    return "right" if right else "WRONG"


class _Timed:
    """Stream time of work whose calls have all been made before the device begins."""

    def __init__(self, gpu: Any) -> None:
        self._gpu = gpu
        self._events = [self._event() for _ in range(2)]
        # Of the C library, so that the device waits without Python.
        libc = ctypes.CDLL(None)
        self._post, self._wait = libc.sem_post, ctypes.cast(libc.sem_wait, c_void_p)
        self._sign = ctypes.create_string_buffer(64)  # a sem_t: 32 bytes
        libc.sem_init(self._sign, c_int(0), c_uint(0))

    def _event(self) -> c_void_p:
        made = c_void_p()
        self._gpu.call("cuEventCreate", ctypes.byref(made), c_uint(0))
        return made

    def seconds(self, work: Callable[[], object]) -> float:
        """From the stream's reaching the work to its being through with it."""
        stream = c_void_p(self._gpu.stream)
        self._gpu.call("cuLaunchHostFunc", stream, self._wait, ctypes.byref(self._sign))
        self._gpu.call("cuEventRecord", self._events[0], stream)
        kept = work()
        self._gpu.call("cuEventRecord", self._events[1], stream)
        self._post(self._sign)
        self._gpu.call("cuStreamSynchronize", stream)
        del kept
        taken = c_float()
        self._gpu.call("cuEventElapsedTime", ctypes.byref(taken), *self._events)
        return taken.value / 1e3


def prepare(apart: bool = True) -> tuple[Any, Any, Any, Any]:
    """Horovod, its operations for arrays on the GPU, these, and the core's driver. `apart`: to the core each rank has
    a GPU of its own.
    """
    rank = int(os.environ["HOROVOD_RANK"])
    os.environ.update(HVD_TEST_GPU="0", NCCL_HOSTID=f"probe-{rank}", FAKE_CUDA_UUID=str(rank if apart else 0))
    os.environ.setdefault("HVD_TEST_CUDA_LIBRARY", "libcuda.so.1")
    import gpu_arrays

    import horovod.numpy as hvd
    from horovod._core.operations.collectives import Collectives

    gpu_arrays.driver()
    library = other_gpu.use_for_the_core(rank if apart else None)
    hvd.init()
    return hvd, Collectives(gpu_arrays.adapter), gpu_arrays, library


def array_of(gpu_arrays: Any, elems: int, value: float) -> Any:
    import numpy

    values = numpy.full(elems, value, numpy.float32)
    return gpu_arrays.GpuArray(values, values)


class _Told(NamedTuple):
    """What a job measures with, and to whom it tells its rows."""

    hvd: Any
    operations: Any
    gpu_arrays: Any
    row: Callable[..., None]


def two() -> None:
    """The engine's allreduce beside ncclAllReduce, in turns."""
    import nccl

    hvd, operations, gpu_arrays, library = prepare()
    told = _Told(hvd, operations, gpu_arrays, job.tell if hvd.rank() == 0 else lambda *_: None)
    identity = hvd.broadcast_object(bytes(nccl.unique_id().bytes) if hvd.rank() == 0 else None, 0)
    communicator = nccl.join(2, nccl.UniqueId.from_buffer_copy(identity), hvd.rank())
    for size in _SIZES:
        _beside_nccl(told, communicator, size)
    _judge_way(told, "nccl", library)
    nccl.call("ncclCommDestroy", communicator)
    hvd.shutdown()


def _judge_way(told: _Told, way: str, library: Any) -> None:
    from jobs import ways

    carried = ways.batches()[way]
    told.row(f"batches that went by {way}", "", "", f"{carried} {_judge(way, carried > 0)}")
    told.row("waits of the core for the device in all of it", "", "", library.waits_of_the_core())


def _beside_nccl(told: _Told, communicator: c_void_p, size: int) -> None:
    import nccl
    import numpy

    hvd, operations, gpu = told.hvd, told.operations, told.gpu_arrays.driver()
    raw, stream = nccl.bare("ncclAllReduce"), c_void_p(gpu.stream)
    array, name_of = array_of(told.gpu_arrays, size // 4, 1.0), f"sum{size}"
    one = numpy.ones(1, numpy.float32)
    place, elems = c_void_p(array.address), c_size_t(size // 4)
    # What is measured, and what must follow before the stream holds the operation.
    contenders: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
        "ncclAllReduce": (
            lambda: raw(place, place, elems, nccl.FLOAT32, nccl.SUM, communicator, stream),
            lambda code: code,
        ),
        "hvd.allreduce_": (lambda: operations.allreduce_(array, op=hvd.Sum, name=name_of), lambda result: result),
        "hvd.allreduce_async_": (
            lambda: operations.allreduce_async_(array, op=hvd.Sum, name=name_of),
            operations.synchronize,
        ),
        "hvd.allreduce_ of 4 B in host memory": (
            lambda: hvd.allreduce_(one, op=hvd.Sum, name="in host memory"),
            lambda result: result,
        ),
    }
    returned: dict[str, list[float]] = {name: [] for name in contenders}
    ended: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(ROUNDS + 2):
        for name, (call, rest) in contenders.items():
            hvd.barrier()
            begin = time.perf_counter()
            made = call()
            returned_s = time.perf_counter() - begin
            rest(made)
            gpu.call("cuStreamSynchronize", stream)
            if turn >= 2:
                returned[name].append(returned_s)
                ended[name].append(time.perf_counter() - begin)
    # Every one on the GPU has doubled it, on both ranks.
    right = _judge(name_of, bool((array.numpy() == 2.0 ** (3 * (ROUNDS + 2))).all()))
    for name in contenders:
        times = [spread(taken[name], 1e6) for taken in (returned, ended)]
        told.row(f"{name}, {size_label(size)}", *times, right)
    for name in list(contenders)[1:3]:
        apart = [middle(taken[name]) - middle(taken["ncclAllReduce"]) for taken in (returned, ended)]
        told.row(f"{name} less ncclAllReduce, {size_label(size)}", *(number(a * 1e6) for a in apart), "")


def alone() -> None:
    """The packing kernel as the engine launches it, and what a call of a rank that is alone takes."""
    from ranks import resnet50

    hvd, operations, gpu_arrays, _ = prepare()
    gpu, timed = gpu_arrays.driver(), _Timed(gpu_arrays.driver())
    sizes = [elems for elems in resnet50.gradient_sizes() if 4 * elems <= _LARGEST]
    gradients = [array_of(gpu_arrays, elems, 1.0) for elems in sizes]
    total = 4 * sum(sizes)
    source, target = (gpu.allocate(total) for _ in range(2))

    def copy() -> None:
        gpu.call(
            "cuMemcpyDtoDAsync_v2",
            ctypes.c_uint64(target),
            ctypes.c_uint64(source),
            c_size_t(total),
            c_void_p(gpu.stream),
        )

    def group() -> object:
        return operations.grouped_allreduce_(gradients, op=hvd.Sum, prescale_factor=0.5, name="group")

    group()  # what a first operation loads is loaded while the GPU has nothing to do
    taken: dict[str, list[float]] = {"copy": [], "group": []}
    for turn in range(ROUNDS + 3):
        for name, work in (("copy", copy), ("group", group)):
            seconds = timed.seconds(work)
            if turn >= 3:
                taken[name].append(seconds)
    words = _judge("group", bool((gradients[-1].numpy() == 0.5 ** (ROUNDS + 4)).all()))
    job.tell("one copy of as many bytes, stream", spread(taken["copy"], 1e6), "", "")
    share = number(middle(taken["copy"]) / middle(taken["group"]))
    job.tell(f"{len(sizes)} gradients multiplied by the engine, stream", spread(taken["group"], 1e6), share, words)
    small = array_of(gpu_arrays, 1, 1.0)
    calls = []
    for _ in range(200):
        begin = time.perf_counter()
        operations.allreduce_(small, op=hvd.Sum, name="small")
        calls.append(time.perf_counter() - begin)
    job.tell("hvd.allreduce_ of 4 B alone, host", spread(calls[20:], 1e6), "", "")
    hvd.shutdown()


def staged() -> None:
    """Two ranks on one GPU through the host, beside the same in host memory and a copy of as many bytes."""
    hvd, operations, gpu_arrays, library = prepare(apart=False)
    told = _Told(hvd, operations, gpu_arrays, job.tell if hvd.rank() == 0 else lambda *_: None)
    pinned = c_void_p()
    gpu_arrays.driver().call("cuMemHostAlloc", ctypes.byref(pinned), c_size_t(_STAGED_SIZES[-1]), c_uint(1))
    for size in _STAGED_SIZES:
        _beside_a_copy(told, pinned, size)
    _judge_way(told, "staged", library)
    hvd.shutdown()


def _beside_a_copy(told: _Told, pinned: c_void_p, size: int) -> None:
    import numpy

    hvd, operations, gpu = told.hvd, told.operations, told.gpu_arrays.driver()
    array, there = array_of(told.gpu_arrays, size // 4, 1.0), numpy.ones(size // 4, numpy.float32)
    source, count, stream = ctypes.c_uint64(array.address), c_size_t(size), c_void_p(gpu.stream)
    contenders: dict[str, Callable[[], object]] = {
        "a copy to pinned memory": lambda: gpu.call("cuMemcpyDtoHAsync_v2", pinned, source, count, stream),
        "hvd.allreduce_ in host memory": lambda: hvd.allreduce_(there, op=hvd.Sum, name=f"there{size}"),
        "hvd.allreduce_": lambda: operations.allreduce_(array, op=hvd.Sum, name=f"sum{size}"),
    }
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(ROUNDS + 2):
        for name, call in contenders.items():
            hvd.barrier()
            begin = time.perf_counter()
            call()
            gpu.call("cuStreamSynchronize", stream)
            if turn >= 2:
                taken[name].append(time.perf_counter() - begin)
    right = _judge(f"{size} B", bool((array.numpy() == 2.0 ** (ROUNDS + 2)).all()))
    copy_s = middle(taken["a copy to pinned memory"])
    for name, seconds in taken.items():
        words = right if name == "hvd.allreduce_" else ""
        told.row(f"{name}, {size_label(size)}", spread(seconds, 1e6), number(copy_s / middle(seconds)), words)


if __name__ == "__main__":
    try:
        {"two": two, "alone": alone, "staged": staged}[sys.argv[1]]()
    except libraries.Missing as missing:
        raise ImportError(str(missing)) from missing
    sys.exit(f"wrong results: {', '.join(_wrong)}" if _wrong else 0)
