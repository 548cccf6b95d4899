"""A rank whose operations on its (fake) GPU are shown in a timeline. Started by `test_gpu_timeline`."""

from __future__ import annotations

import ctypes
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from jobs.report import report

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "contract"))

import gpu_arrays  # noqa: E402

import horovod.numpy as hvd  # noqa: E402
from horovod._core.operations.collectives import Collectives  # noqa: E402

ops = Collectives(gpu_arrays.adapter)
HELD_S = 30


def array() -> gpu_arrays.GpuArray:
    """Ones on the GPU, once the framework's stream has come so far."""
    return gpu_arrays.GpuArray(np.ones(1000, np.float32), np.ones(1000, np.float32))


def steps() -> None:
    """Three steps of three tensors; the host waits for each step's results."""
    sums = set()
    for _ in range(3):
        tensors = [array() for _ in range(3)]
        handles = [ops.allreduce_async_(tensor, op=hvd.Sum, name=f"t{i}") for i, tensor in enumerate(tensors)]
        for handle in handles:
            ops.synchronize(handle)
        sums.update(float(value) for tensor in tensors for value in tensor.numpy())
    hvd.allreduce(np.ones(10, np.float32), name="after")
    hvd.shutdown()
    report("stepped", sums=sorted(sums), faults=gpu_arrays.driver().faults())


def overlaps() -> None:
    """A tensor is reduced while the framework's stream is held in what it computes next; rank 0 sees that in the trace,
    which is being written."""
    trace = Path(os.environ["TRACE"])
    if hvd.rank() == 0:
        hvd.start_timeline(str(trace))
    tensor = array()
    handle = ops.allreduce_async_(tensor, op=hvd.Sum, name="early")
    shown, busy = True, True
    if hvd.rank() == 0:
        driver: Any = ctypes.CDLL(os.environ["HVD_TEST_CUDA_LIBRARY"])
        computed = threading.Event()
        compute = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: None if computed.wait(HELD_S) else None)
        stream = ctypes.c_void_p(gpu_arrays.driver().stream)
        assert driver.cuLaunchHostFunc(stream, compute, None) == 0
        deadline = time.monotonic() + HELD_S / 2
        while not (shown := "NCCL_ALLREDUCE" in _phases(trace)) and time.monotonic() < deadline:
            time.sleep(0.01)
        busy = driver.cuStreamQuery(stream) == 600  # CUDA_ERROR_NOT_READY
        computed.set()
    ops.synchronize(handle)
    report("overlapped", shown=shown, busy=busy, sum=float(tensor.numpy()[0]))
    if hvd.rank() == 0:
        hvd.stop_timeline()
    hvd.allreduce(np.ones(10, np.float32), name="after")
    hvd.shutdown()


def _phases(trace: Path) -> set[str]:
    try:
        events = json.loads(trace.read_text())
    except json.JSONDecodeError:  # it was written to between the two reads of read_text
        return set()
    return {event["name"] for event in events if event["ph"] == "X" and event["tid"] > 0}


if __name__ == "__main__":
    gpu_arrays.driver()
    hvd.init()
    {"steps": steps, "overlaps": overlaps}[sys.argv[1]]()
