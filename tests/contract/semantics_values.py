"""The values of results: how exact they are, equal on all ranks, and what a compressor makes of them."""

from __future__ import annotations

from typing import Any, Callable

import ml_dtypes
import numpy as np
from targets import Env


def accuracy_of_16_bit(env: Env) -> None:
    for dtype, bits in ((np.float16, 10), (ml_dtypes.bfloat16, 7)):
        inputs = [np.random.default_rng(rank).standard_normal(2000).astype(dtype) for rank in range(env.size)]
        exact = np.sum([array.astype(np.float64) for array in inputs], axis=0)
        total = env.target.array(env.hvd.allreduce(env.target.tensor(inputs[env.rank]), op=env.hvd.Sum))
        # Rounded once, to half a unit in the last place of the result; the float32 sum itself is off by far less.
        # Between hosts, where partial sums travel in 16 bits, each hop rounds; so does NCCL.
        largest = np.abs(exact)
        hops = 1
        if env.apart or env.target.name == "gpu":
            largest = np.sum([np.abs(array.astype(np.float64)) for array in inputs], axis=0)
            hops = env.size
        unit = 2.0 ** (np.floor(np.log2(np.maximum(largest, 1e-3))) - bits)
        worst = float(np.max(np.abs(total.astype(np.float64) - exact) / unit))
        env.check_true(f"{np.dtype(dtype).name} is off by {worst:.3f} units in the last place", worst <= 0.51 * hops)


def equal_bits_on_all_ranks(env: Env) -> None:
    array = np.random.default_rng(env.rank).standard_normal(10007).astype(np.float32)
    for op in (env.hvd.Sum, env.hvd.Average):
        total = env.target.array(env.hvd.allreduce(env.target.tensor(array), op=op))
        digests = env.hvd.allgather_object(total.tobytes())
        env.check_true("the ranks' bits differ", len(set(digests)) == 1)


def special_floats(env: Env) -> None:
    array = np.array([np.inf, -np.inf, np.nan, 1e38, -0.0], np.float32)
    total = env.target.array(env.hvd.allreduce(env.target.tensor(array), op=env.hvd.Sum))
    env.check_true(f"special floats {total}", total[0] == np.inf and total[1] == -np.inf and bool(np.isnan(total[2])))


def compression(env: Env) -> None:
    for compressor in (env.hvd.Compression.none, env.hvd.Compression.fp16, env.hvd.Compression.bf16):
        result = env.hvd.allreduce(env.tensor([1.5, 2.5]), op=env.hvd.Sum, compression=compressor)
        env.check(f"{compressor}", result, np.array([1.5, 2.5], np.float32) * env.size)
        whole = env.hvd.allreduce(env.tensor([70000], np.int32), op=env.hvd.Sum, compression=compressor)
        env.check(f"{compressor} of int32", whole, np.array([70000], np.int32) * env.size)


class Kept:
    """A compressor that sends memory which somebody else holds: a view of the tensor."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        return tensor.reshape(-1), tensor.shape

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tensor.reshape(ctx)


def compression_by_a_view(env: Env) -> None:
    if env.target.name == "tensorflow":
        return  # whose tensors never change
    given, values = env.tensor([[1.5], [2.5]]), np.array([[1.5], [2.5]], np.float32)
    for _ in range(2):
        result = env.hvd.allreduce(given, op=env.hvd.Max, prescale_factor=2.0, compression=Kept, name="view")
        env.check("the result", result, values * 2)
        env.check("the tensor given", given, values)


VALUES: tuple[Callable[[Env], None], ...] = (
    accuracy_of_16_bit, equal_bits_on_all_ranks, special_floats, compression, compression_by_a_view,
)  # fmt: skip
