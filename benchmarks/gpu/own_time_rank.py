"""The ranks of `probe_engine` that measure what the core itself takes for an operation on a GPU, beside the same in
host memory: two members of NCCL, through the C interface, the device free.

"Free" means that after a first round no call reaches the device (`idle_device`): what is left is the host's own work,
which is the same over the fake driver and the fake NCCL (HVD_TEST_CUDA_LIBRARY, HOROVOD_NCCL_PATH).
"""

from __future__ import annotations

import ctypes
import functools
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Callable

import idle_device
import job
import libraries
from engine_rank import ROUNDS, array_of, prepare
from table import middle, number, spread

_GRADIENTS = 161  # of ResNet-50
_LIMIT_S = 20.0


def _operations(name: str, addresses: Sequence[int], place: int, stream: int) -> Any:
    """An allreduce in place of each tensor, of one element, as the C interface takes it."""
    from horovod._native import abi

    ops = (abi.HvdOp * len(addresses))()
    for index, (op, address) in enumerate(zip(ops, addresses)):
        op.type, op.dtype, op.reduce_op, op.ndim = abi.ALLREDUCE, abi.FLOAT32, abi.SUM, 1
        op.prescale = op.postscale = 1.0
        op.name = f"{name}.{index}".encode()
        op.input = op.output = address
        op.shape, op.place, op.stream = (ctypes.c_int64 * 1)(1), place, stream
    return ops


def _check(code: int) -> None:
    if code:
        raise RuntimeError(f"an operation of the core failed with status {code}")


def _blocking(core: Any, ops: Any) -> None:
    handle = ctypes.c_int64()
    _check(core.hvd_run(ops, len(ops), _LIMIT_S, ctypes.byref(handle)))
    if handle.value:
        _check(core.hvd_release(handle))


def _asynchronous(core: Any, ops: Any) -> None:
    """One by one, as hooks submit gradients, and waited for at the end."""
    handles = (ctypes.c_int64 * len(ops))()
    for op, handle in zip(ops, range(ctypes.addressof(handles), ctypes.addressof(handles) + 8 * len(ops), 8)):
        _check(core.hvd_submit(ctypes.byref(op), 1, 0, ctypes.c_void_p(handle)))
    _check(core.hvd_finish_all(handles, len(ops), _LIMIT_S))


def _contenders(core: Any, gpu_arrays: Any) -> tuple[dict[str, Callable[[], None]], Any]:
    """Each way of calling, in host memory and on the GPU; and what must live as long as they."""
    import numpy

    gpu = gpu_arrays.driver()
    host = [numpy.ones(1, numpy.float32) for _ in range(_GRADIENTS)]
    device = [array_of(gpu_arrays, 1, 1.0) for _ in range(_GRADIENTS)]
    places = {
        "host": ([array.ctypes.data for array in host], 0, 0),
        "GPU": ([array.address for array in device], gpu.device + 1, gpu.stream),
    }
    ways = {
        "blocking": (1, _blocking),
        "2 as a group": (2, _blocking),  # which is no small operation of one crossing (design 0005) in host memory
        "asynchronous": (1, _asynchronous),
        f"{_GRADIENTS} as a group": (_GRADIENTS, _blocking),
        f"{_GRADIENTS} asynchronous": (_GRADIENTS, _asynchronous),
    }
    made = {}
    for way, (count, run) in ways.items():
        for where, (addresses, place, stream) in places.items():
            ops = _operations(f"{way}, {where}", addresses[:count], place, stream)
            made[f"{way}, {where}"] = functools.partial(run, core, ops)
    return made, (host, device)


def _measure(hvd: Any, contenders: dict[str, Callable[[], None]], watched: Sequence[ctypes.CDLL]) -> None:
    """Rank 0 tells the rows."""
    taken: dict[str, list[float]] = {label: [] for label in contenders}
    calls: dict[str, list[float]] = {label: [] for label in contenders}
    for _ in range(10 * ROUNDS):
        for label, call in contenders.items():
            hvd.barrier()
            before = sum(library.calls_of_the_core() for library in watched)
            begin = time.perf_counter()
            call()
            taken[label].append(time.perf_counter() - begin)
            calls[label].append(sum(library.calls_of_the_core() for library in watched) - before)
    if hvd.rank() != 0:
        return
    for label, seconds in taken.items():
        job.tell(label, spread(seconds, 1e6), number(middle(calls[label])))
    for way in dict.fromkeys(label.rpartition(",")[0] for label in taken):
        more = middle(taken[f"{way}, GPU"]) - middle(taken[f"{way}, host"])
        job.tell(f"{way}: more on the GPU", number(more * 1e6), "")


def main() -> None:
    """Loads the libraries before the driver and NCCL, goes each way some times for real, then measures."""
    with tempfile.TemporaryDirectory() as folder:
        nccl = idle_device.before(libraries.open_library("nccl")[1], "nccl/library.h", Path(folder))
        os.environ["HOROVOD_NCCL_PATH"] = nccl._name
        hvd, operations, gpu_arrays, library = prepare()
        driver = idle_device.before(library._name, "cuda/driver/driver.h", Path(folder))
        from horovod._core.gpu import libraries as libraries_of_the_core
        from horovod._core.life import session

        libraries_of_the_core.DRIVER = driver._name  # type: ignore[misc]
        first = array_of(gpu_arrays, 1, 1.0)
        operations.allreduce_(first, op=hvd.Sum, name="first")  # has the core open both
        contenders, _keep = _contenders(session.require().engine._library, gpu_arrays)
        for call in [*contenders.values()] * 5:
            call()
        gpu_arrays.driver().call("cuStreamSynchronize", ctypes.c_void_p(gpu_arrays.driver().stream))
        hvd.barrier()
        watched = (driver, nccl)
        for each in watched:
            each.set_idle(1)
        _measure(hvd, contenders, watched)
        for each in watched:
            each.set_idle(0)
        hvd.shutdown()


if __name__ == "__main__":
    try:
        main()
    except libraries.Missing as missing:
        raise ImportError(str(missing)) from missing
