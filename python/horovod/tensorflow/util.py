"""Import path kept for users' scripts: small questions about TensorFlow and arguments."""

from __future__ import annotations

import functools
from typing import Any, Callable, Optional

import tensorflow as tf

from horovod._core.compat import legacy
from horovod._core.operations import reduce_ops
from horovod._core.operations.reduce_ops import ReduceOp
from horovod.tensorflow.functions import refs_to_vars, vars_to_refs

__all__ = [
    "_cache", "_executing_eagerly", "_make_subgraph", "check_num_rank_power_of_2", "gpu_available",
    "handle_average_backwards_compatibility", "refs_to_vars", "vars_to_refs",
]  # fmt: skip


def _executing_eagerly() -> bool:
    return bool(tf.executing_eagerly())


def _cache(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, called once for each set of arguments, which can be hashed; it remembers its results for ever."""
    return functools.cache(function)


def _make_subgraph(function: Callable[..., Any]) -> Callable[..., Any]:
    """A `tf.function`."""
    made: Callable[..., Any] = tf.function(function)
    return made


def check_num_rank_power_of_2(num_rank: int) -> bool:
    """True for 1, 2, 4, 8, ..."""
    return reduce_ops.is_power_of_two(num_rank)


def gpu_available(ext_base_name: Any = None, verbose: bool = False) -> bool:
    """True if TensorFlow sees a GPU. The arguments are accepted and not needed."""
    return legacy.gpu_available("tensorflow")


def handle_average_backwards_compatibility(op: Optional[int], average: Optional[bool]) -> ReduceOp:
    """The operation meant by `op` and the deprecated `average`."""
    return reduce_ops.resolve(op, average)
