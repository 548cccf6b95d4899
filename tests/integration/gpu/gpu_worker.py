"""A rank that does one of the parts below with arrays on its (fake) GPU. Started by `test_gpu_jobs`."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from typing import Any, Callable

import numpy as np
from jobs.report import report

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "contract"))

import gpu_arrays  # noqa: E402

import horovod.numpy as hvd  # noqa: E402
from horovod._core.errors import HorovodInternalError, MismatchError  # noqa: E402
from horovod._core.operations.collectives import Collectives  # noqa: E402

ops = Collectives(gpu_arrays.adapter)
RANK = int(os.environ["HOROVOD_RANK"])


def array(values: Any) -> gpu_arrays.GpuArray:
    """On the GPU."""
    values = np.asarray(values, np.float32)
    return gpu_arrays.GpuArray(values, values)


def summed() -> float:
    """What a sum of this rank's number and those of the others is."""
    total = ops.allreduce(array(np.full(1000, hvd.rank() + 1.0)), op=hvd.Sum)
    return float(total.numpy()[-1])


def averaged() -> float:
    """What the average of these numbers is, by a factor that our kernel could multiply."""
    numbers = np.full(1000, hvd.rank() + 1.0, np.float32)
    return float(ops.allreduce(array(numbers), op=hvd.Average).numpy()[-1])


def fake(name: str, *arguments: Any) -> Any:
    """Calls a control of the fake NCCL."""
    return getattr(ctypes.CDLL(os.environ["HVD_TEST_NCCL_LIBRARY"]), name)(*arguments)


def killed() -> None:
    """Rank 1 is killed while NCCL's kernels stand still."""
    summed()
    fake("fake_nccl_hang", 1)
    held = array(np.ones(1000))
    ops.synchronize(ops.allreduce_async_(held, op=hvd.Sum, name="held"))  # it is on its way
    if hvd.rank() == 1:
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        while True:
            ops.allreduce(held, op=hvd.Sum, name="next")
            time.sleep(0.01)
    except HorovodInternalError as error:
        begin = time.monotonic()
        held.numpy()  # waits for the framework's stream, which waits for the kernel
        report("failed", why=str(error), free_s=time.monotonic() - begin)


def killed_in_two_levels() -> None:
    """Rank 1 is killed while the kernels of its host, and of the other one, stand still."""
    summed()
    fake("fake_nccl_hang", 1)
    held = array(np.ones(1000))
    handle = ops.allreduce_async_(held, op=hvd.Sum, name="held")
    if hvd.rank() == 1:
        while fake("fake_nccl_operations") == 0:
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        ops.synchronize(handle)
    except HorovodInternalError as error:
        begin = time.monotonic()
        held.numpy()
        report("failed", why=str(error), free_s=time.monotonic() - begin)


def apart() -> None:
    """Rank 0 has its tensor on the GPU, the others have it in host memory."""
    try:
        if hvd.rank() == 0:
            ops.allreduce(array([1.0]), name="apart")
        else:
            hvd.allreduce(np.ones(1, np.float32), name="apart")
    except MismatchError as error:
        report("mismatch", why=str(error), then=summed())


def works() -> None:
    """Sums, twice, with a new life in between; then nothing."""
    first = summed()
    hvd.shutdown()
    hvd.init()
    second = summed()
    begin = time.process_time()
    time.sleep(1)
    idle_s = time.process_time() - begin
    report("worked", sums=[first, second], idle_s=idle_s, faults=gpu_arrays.driver().faults())


def broadcasts() -> None:
    """From each rank in turn."""
    values = []
    for root in range(hvd.size()):
        sent = ops.broadcast(array(np.full(1000 + root, hvd.rank() + 1.0)), root)
        values.append(sorted({float(value) for value in sent.numpy()}))
    report("broadcast", values=values, faults=gpu_arrays.driver().faults())


def killed_in_a_broadcast() -> None:
    """Rank 3 is killed before it sends what the others wait for."""
    summed()
    if hvd.rank() == 3:
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        ops.broadcast(array(np.ones(100_000)), 3, name="held")
        ops.broadcast(array(np.ones(1)), 0, name="next")
    except HorovodInternalError as error:
        report("failed", why=str(error))


def busy() -> None:
    """Rank 1's GPU has other work for longer than a process may stand still."""
    summed()
    tensor = array(np.full(1000, hvd.rank() + 1.0))
    stall = ctypes.CDLL(os.environ["HVD_TEST_CUDA_LIBRARY"]).fake_cuda_stall
    stall(int(hvd.rank() == 1))
    handle = ops.allreduce_async_(tensor, op=hvd.Sum, name="waits")
    until = time.monotonic() + 3 * float(os.environ["HOROVOD_GLOO_TIMEOUT_SECONDS"])
    while time.monotonic() < until:
        ops.poll(handle)
        time.sleep(0.05)
    stall(0)
    ops.synchronize(handle)
    report("busy", sum=float(tensor.numpy()[-1]))


def busy_elsewhere() -> None:
    """Rank 1's GPU is late for ranks 1 and 2, so that rank 1 is late for what ranks 0 and 1 agree upon first."""
    summed()  # a first operation loads kernels, and waits for the GPU
    front, back = hvd.add_process_set([0, 1]), hvd.add_process_set([1, 2])
    tensor = array(np.full(1000, hvd.rank() + 1.0))
    stall = ctypes.CDLL(os.environ["HVD_TEST_CUDA_LIBRARY"]).fake_cuda_stall
    stall(int(hvd.rank() == 1))
    handles = []
    if hvd.rank() > 0:  # through the host, as NCCL does not
        handles.append(ops.allreduce_async(tensor, op=hvd.Max, name="late", process_set=back))
    time.sleep(0.2 if hvd.rank() > 0 else 0.4)
    if hvd.rank() < 2:
        handles.append(ops.allgather_async(tensor, name="behind", process_set=front))
    until = time.monotonic() + 3 * float(os.environ["HOROVOD_GLOO_TIMEOUT_SECONDS"])
    while time.monotonic() < until:
        for handle in handles:
            ops.poll(handle)
        time.sleep(0.05)
    stall(0)
    report("busy elsewhere", results=[float(ops.synchronize(handle).numpy()[-1]) for handle in handles])


def let_go() -> None:
    """Tensors die as soon as the operations are on their way, and their memory is used again at once."""
    for step in range(20):
        tensors = [array(np.ones(100 + step)) for _ in range(5)]
        handles = [ops.allreduce_async_(tensor, op=hvd.Sum, name=f"{i}") for i, tensor in enumerate(tensors)]
        for handle in handles:
            ops.synchronize(handle)
        del tensors
    report("let go", sum=summed(), faults=gpu_arrays.driver().faults())


def refused() -> None:
    """What the settings ask for cannot be honoured."""
    try:
        summed()
    except Exception as error:
        report("refused", why=str(error))


def late() -> None:
    """Rank 1 has joined before it uses its GPU, and uses it then."""
    if hvd.rank() == 1:
        hvd.join()
        early = 0.0
    else:
        early = summed() + averaged()
        hvd.join()
    before = fake("fake_nccl_communicators")
    sums = [early, summed()]
    report("late", rank=hvd.rank(), sums=sums, communicators=[before, fake("fake_nccl_communicators")])


ALL = (
    killed,
    killed_in_two_levels,
    apart,
    works,
    broadcasts,
    killed_in_a_broadcast,
    busy,
    busy_elsewhere,
    let_go,
    refused,
    late,
)
PARTS: dict[str, Callable[[], None]] = {part.__name__: part for part in ALL}

if __name__ == "__main__":
    # What is different on this rank alone.
    for pair in filter(None, os.environ.get(f"HVD_TEST_ON_RANK_{RANK}", "").split(",")):
        name, _, value = pair.partition("=")
        os.environ[name] = value
    gpu_arrays.driver()
    hvd.init()
    PARTS[sys.argv[1]]()
