"""Collectives inside functions that JAX compiles, on one rank or more: every operation, several in one call, between
what is late and what reads at once, in given memory, in training steps, failures, a second life of the job.

    python -m horovod.runner -np 2 python tests/gpu/jax_cuda.py         # on GPUs, which ranks may share
    JAX_PLATFORMS=cpu python -m horovod.runner -np 2 python tests/gpu/jax_cuda.py cpu

Ends with 0 and a line if all is right. Started by tools/test_gpu.py, and on the CPU by the tests. It needs no Keras.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Callable

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # ranks may share a GPU

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

import horovod.numpy as hvd  # noqa: E402
from horovod._core.gpu import devices  # noqa: E402
from horovod._core.life.engine_port import ALLGATHER, ALLREDUCE, ALLTOALL, BROADCAST, REDUCESCATTER  # noqa: E402
from horovod._core.operations.described_call import DescribedOperation, TensorForm, failure_named_in  # noqa: E402
from horovod._core.tensors import dtypes  # noqa: E402
from horovod.jax import operators  # noqa: E402


def form(name: str, tensor: Any, result: Any) -> TensorForm:
    number = dtypes.NAMES.index(str(tensor.dtype))
    return TensorForm(name, number, tensor.shape, int(np.prod(result.shape)) * result.dtype.itemsize)


def allreduce(name: str, *tensors: Any, factors: tuple[float, float] = (1.0, 1.0)) -> list[Any]:
    """Sums, each a submission of its own."""
    calls = [
        DescribedOperation(ALLREDUCE, [form(f"{name}.{n}", tensor, tensor)], 0, int(hvd.Sum), factors)
        for n, tensor in enumerate(tensors)
    ]
    results: list[Any] = operators.call(calls, tensors)
    return results


def others(make: Callable[[int], Any]) -> list[Any]:
    """What each rank makes, in NumPy's arrays."""
    return [np.asarray(make(rank)).astype(np.float64) for rank in range(hvd.size())]


def same(got: Any, expected: Any) -> None:
    """Raises AssertionError unless the array is where JAX computes and holds these values."""
    assert got.devices() == {jax.devices()[0]}, got.devices()
    np.testing.assert_allclose(np.asarray(got).astype(np.float64), expected, rtol=1e-2)


def collectives() -> None:
    """Each operation and each dtype that is summed."""
    rank, size = hvd.rank(), hvd.size()
    for dtype in ("float32", "float16", "bfloat16", "int32", "uint8", "int16"):

        def make(rank: int, dtype: str = dtype) -> Any:
            return (jnp.arange(size * 1200).reshape(size * 400, 3) % 5 + rank).astype(dtype)

        own, all_ranks = make(rank), others(make)
        same(jax.jit(lambda x, dtype=dtype: allreduce(f"sum.{dtype}", x)[0])(own), sum(all_ranks))

        def run(op_type: int, shape: Any, own: Any = own, dtype: str = dtype, **options: Any) -> Any:
            result = jax.ShapeDtypeStruct(shape, own.dtype)
            one = DescribedOperation(op_type, [form(f"x.{dtype}", own, result)], **options)
            return jax.jit(lambda x: operators.call([one], [x], [result]))(own)[0]

        part = slice(rank * 400, (rank + 1) * 400)
        same(run(BROADCAST, own.shape, root=size - 1), all_ranks[-1])
        same(run(ALLGATHER, (size * len(own), 3)), np.concatenate(all_ranks))
        same(run(ALLTOALL, own.shape), np.concatenate([one[part] for one in all_ranks]))
        same(run(REDUCESCATTER, (400, 3), reduce_op=int(hvd.Sum)), sum(all_ranks)[part])
    flags = jnp.array([False, rank == 0, True])
    one = DescribedOperation(ALLREDUCE, [form("flags", flags, flags)], 0, int(hvd.Max))
    same(jax.jit(lambda x: operators.call([one], [x]))(flags)[0], [0, 1, 1])


def order() -> None:
    """What is computed late is reduced, and who reads at once sees it; many times, so that memory is used again."""

    def steps(x: Any) -> Any:
        for number in range(4):
            late = jax.lax.fori_loop(0, 40 * (1 + (number + hvd.rank()) % 2), lambda _, y: jnp.tanh(y @ y), x)
            results = allreduce(f"late.{number}", *[x + n + 0 * late for n in range(20)], factors=(0.5, 2.0))
            x = sum(results) / (20 * hvd.size()) - 9.5
        return x

    compiled, start = jax.jit(steps), jnp.ones((300, 300)) / 300
    for _ in range(10):
        np.testing.assert_allclose(compiled(start), start, atol=1e-4)


def given_memory() -> None:
    """A tensor that XLA need not keep is reduced where it lies."""
    given = jnp.ones(100_000)
    address = given.unsafe_buffer_pointer()
    result = jax.jit(lambda x: allreduce("given", x)[0], donate_argnums=0)(given)
    assert result.unsafe_buffer_pointer() == address
    same(result, np.full(100_000, hvd.size()))
    kept = jnp.ones(1000)
    same(jax.jit(lambda x: allreduce("kept", x)[0])(kept), np.full(1000, hvd.size()))
    same(kept, np.ones(1000))


def training() -> None:
    """Steps on parts of the data are steps on all of them."""
    rank, size = hvd.rank(), hvd.size()
    x = np.random.default_rng(1).normal(size=(16 * size, 8)).astype("float32")
    y = x.sum(1) ** 2

    def loss(weights: Any, x: Any, y: Any) -> Any:
        return ((jnp.tanh(x @ weights[0]) @ weights[1] - y) ** 2).mean()

    def step(weights: Any, x: Any, y: Any, reduced: bool) -> Any:
        gradients = jax.grad(loss)(weights, x, y)
        if reduced:
            gradients = allreduce("gradients", *gradients, factors=(1.0, 1.0 / size))
        return [weight - 0.01 * gradient for weight, gradient in zip(weights, gradients)]

    alone = together = [jnp.full((8, 4), 0.1) * jnp.arange(4), jnp.full(4, 0.2)]
    compiled, mine = jax.jit(step, static_argnums=3), slice(16 * rank, 16 * (rank + 1))
    for _ in range(20):
        together = compiled(together, x[mine], y[mine], True)
        alone = compiled(alone, x, y, False)
    for got, expected in zip(together, alone):
        np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-4)


def failures() -> None:
    """Told as errors of XLA, which leave the job as it was."""
    if hvd.size() > 1:
        try:
            jax.block_until_ready(jax.jit(lambda x: allreduce("differs", x))(jnp.ones(2 + hvd.rank())))
        except jax.errors.JaxRuntimeError as error:
            assert type(failure_named_in(error)).__name__ == "MismatchError", error
        else:
            raise AssertionError("tensors of different shapes were reduced")
    same(jax.jit(lambda x: allreduce("differs", x)[0])(jnp.ones(5)), np.full(5, hvd.size()))


def later_life() -> None:
    """A compiled function goes on after the engine was started anew."""
    compiled = jax.jit(lambda x: allreduce("lives", x)[0])
    for _ in range(2):
        same(compiled(jnp.ones(1000)), np.full(1000, hvd.size()))
        hvd.shutdown()
        hvd.init()


PARTS = (collectives, order, given_memory, training, failures, later_life)


def choose_gpu() -> None:
    """One for each process, as long as there are enough."""
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = len(devices.nvidia() if shown is None else shown.split(",")) or 1  # where there is none, JAX says so
    jax.config.update("jax_cuda_visible_devices", str(hvd.local_rank() % count))


def main(platform: str = "cuda") -> int:
    """0: all is right.

    Args:
        platform: where JAX must compute: cuda, cpu.
    """
    hvd.init()
    if platform == "cuda":
        choose_gpu()
    (device,) = jax.devices()
    name = device.platform if device.platform == "cpu" else device.client.platform_version
    assert platform in name, f"JAX computes on {name}"
    assert operators.usable(), f"the core does not reach {device}"
    for part in PARTS:
        part()
    print(f"rank {hvd.rank()} of {hvd.size()}: {len(PARTS)} parts are right on {device.device_kind}")
    hvd.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
