"""A rank that calls the core's handler for JAX on CUDA as XLA does, on its (fake) GPU. Started by `test_jax_frames`."""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any, Callable

import numpy as np
from jobs.report import report

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "contract"), HERE]

import gpu_arrays  # noqa: E402
import xla_frames  # noqa: E402

import horovod.numpy as hvd  # noqa: E402
from horovod._core.life import session  # noqa: E402
from horovod._core.life.engine_port import ALLGATHER, ALLREDUCE, ALLTOALL, BROADCAST, REDUCESCATTER  # noqa: E402
from horovod._core.life.planes import gpu_plane  # noqa: E402
from horovod._core.operations.described_call import DescribedOperation, TensorForm  # noqa: E402
from horovod._core.tensors import dtypes  # noqa: E402

RANK = int(os.environ["HOROVOD_RANK"])
SIZE = 2
ROWS = 600  # for each member


def on_gpu(values: Any) -> gpu_arrays.GpuArray:
    """An array that the stream makes, late."""
    return gpu_arrays.GpuArray(values, values)


def form(name: str, operand: Any, result: Any) -> TensorForm:
    nbytes = int(np.prod(result.shape)) * result.dtype.itemsize
    return TensorForm(name, dtypes.NAMES.index(str(operand.dtype)), operand.shape, nbytes)


def run(op_type: int, name: str, values: Any, rows: int, **options: Any) -> Any:
    """One operation whose result has so many rows, out of place; or the error."""
    operand, result = on_gpu(values), on_gpu(np.full((rows, *values.shape[1:]), -1, values.dtype))
    why = xla_frames.call([DescribedOperation(op_type, [form(name, operand, result)], **options)], [operand], [result])
    return why or result.numpy()


def mine(rank: int = RANK) -> Any:
    return (np.arange(SIZE * ROWS * 3) % 50 + 100 * rank).reshape(SIZE * ROWS, 3).astype(np.float32)


def summed(name: str = "sum") -> float:
    """What a sum of this rank's number and those of the others is."""
    return float(run(ALLREDUCE, name, np.full((ROWS, 1), RANK + 1, np.float32), ROWS, reduce_op=1)[-1, 0])


def operations() -> None:
    """Each operation, on arrays that are not there yet when it is called and whose results are read at once."""
    everyone = [mine(rank) for rank in range(SIZE)]
    part, own = slice(RANK * ROWS, (RANK + 1) * ROWS), everyone[RANK]
    for step in range(3):
        for name, got, expected in (
            ("sum", run(ALLREDUCE, "sum", own, len(own), reduce_op=1, factors=(2, 0.5)), sum(everyone)),
            ("from", run(BROADCAST, "from", own, len(own), root=1), everyone[1]),
            ("all", run(ALLGATHER, "all", own, SIZE * len(own)), np.concatenate(everyone)),
            ("each", run(ALLTOALL, "each", own, len(own)), np.concatenate([one[part] for one in everyone])),
            ("part", run(REDUCESCATTER, "part", own, ROWS, reduce_op=1), sum(everyone)[part]),
        ):
            assert np.array_equal(got, expected), (step, name, got)
    report("right", faults=gpu_arrays.driver().faults())


def together() -> None:
    """Submissions of one call, in another order on each rank, in place; a group; one of no elements."""
    names = [f"t{n}" for n in range(12)][:: 1 if RANK == 0 else -1]
    for step in range(5):
        arrays = [on_gpu(np.full(50 + int(name[1:]), step + int(name[1:]), np.float32)) for name in names]
        group = [on_gpu(np.full(n, n, np.int64)) for n in (3, 0, 5)]
        calls = [DescribedOperation(ALLREDUCE, [form(*pair, pair[1])], reduce_op=1) for pair in zip(names, arrays)]
        members = [form(f"g{n}", array, array) for n, array in enumerate(group)]
        calls.append(DescribedOperation(ALLREDUCE, members, reduce_op=1))
        assert xla_frames.call(calls, arrays + group, arrays + group) == ""
        for name, array in zip(names, arrays):
            assert (array.numpy() == SIZE * (step + int(name[1:]))).all(), name
        assert [array.numpy().tolist() for array in group] == [[SIZE * n] * n for n in (3, 0, 5)]
    report("right", faults=gpu_arrays.driver().faults())


def nobody_waits() -> None:
    """The calls return while the GPU stands still."""
    summed()  # now they have agreed on NCCL
    stall = ctypes.CDLL(os.environ["HVD_TEST_CUDA_LIBRARY"]).fake_cuda_stall
    kept = []  # freeing memory waits for the stream
    for step in range(3):
        stall(1)
        array = on_gpu(np.full(1000, RANK + step, np.float32))
        kept.append(array)
        for _ in range(2):  # of what is not there yet
            calls = [DescribedOperation(ALLREDUCE, [form("again", array, array)], reduce_op=1)]
            assert xla_frames.call(calls, [array], [array]) == ""
        stall(0)
        # The second call has reduced what the first one made.
        assert (array.numpy() == SIZE * sum(rank + step for rank in range(SIZE))).all()
    report("right", faults=gpu_arrays.driver().faults())


def apart() -> None:
    """Rank 1 computes on the CPU."""
    values = np.ones(5, np.float32)
    array = on_gpu(values) if RANK == 0 else values
    operation = DescribedOperation(ALLREDUCE, [form("apart", array, array)], reduce_op=1)
    report("failed", why=xla_frames.call([operation], [array], [array]), then=summed())


def unequal() -> None:
    """The ranks bring different numbers of rows, which no compiled function can know."""
    own = np.ones((1 + RANK, 2), np.float32)
    report("failed", why=run(ALLGATHER, "rows", own, SIZE * len(own)), then=summed())


def without() -> None:
    """Rank 1 has no GPU in use."""
    values = np.ones((5, 1), np.float32)
    why = run(ALLREDUCE, "lonely", values, 5)
    hvd.barrier()  # a rank that has left could no longer be told
    report("failed", why=why, then=0)


def later_life() -> None:
    """A compiled function runs again after the engine was started anew: nobody comes through Python."""
    first = summed()
    hvd.shutdown()
    why = run(ALLREDUCE, "between", np.ones((1, 1), np.float32), 1)
    hvd.init()
    report("worked", sums=[first, summed()], why=why)


PARTS: dict[str, Callable[[], None]] = {
    part.__name__: part for part in (operations, together, nobody_waits, apart, unequal, without, later_life)
}

if __name__ == "__main__":
    gpu_arrays.driver()
    hvd.init()
    if sys.argv[1] != "without" or RANK == 0:
        assert gpu_plane.use_in_every_life(session.require(), gpu_arrays.driver().device)
    PARTS[sys.argv[1]]()
