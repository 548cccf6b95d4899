"""`jax.grad` and `jax.value_and_grad` whose gradients are reduced: for programs without optax."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Callable, Union

import jax

from horovod._core.life.process_sets import ProcessSet, global_process_set
from horovod._core.operations.reduce_ops import Average
from horovod._core.tensors.compression import Compressor
from horovod.jax.compression import Compression
from horovod.jax.ops import allreduce

__all__ = ["GRADIENTS", "grad", "value_and_grad"]

GRADIENTS = "grads"  # begins their names


def value_and_grad(
    fun: Callable[..., Any],
    argnums: Union[int, Sequence[int]] = 0,
    has_aux: bool = False,
    op: int = Average,
    name: str = GRADIENTS,
    compression: Compressor = Compression.none,
    process_set: ProcessSet = global_process_set,
) -> Callable[..., Any]:
    """As `jax.value_and_grad`, with gradients that are combined over the ranks in one call. The value is this rank's.

    Args:
        fun, argnums, has_aux: as of `jax.value_and_grad`.
        op: Average, Sum, ...
        name: begins the names of the gradients; functions whose gradients may be under way together need names.
        compression, process_set: as of `hvd.allreduce`.

    Returns:
        A function, which is collective.
    """
    local = jax.value_and_grad(fun, argnums, has_aux)

    @functools.wraps(local)
    def distributed(*args: Any, **kwargs: Any) -> Any:
        value, gradients = local(*args, **kwargs)
        return value, allreduce(gradients, op, name, compression, process_set=process_set)

    return distributed


def grad(
    fun: Callable[..., Any],
    argnums: Union[int, Sequence[int]] = 0,
    has_aux: bool = False,
    op: int = Average,
    name: str = GRADIENTS,
    compression: Compressor = Compression.none,
    process_set: ProcessSet = global_process_set,
) -> Callable[..., Any]:
    """As `jax.grad`, with gradients that are combined over the ranks; see `value_and_grad`."""
    both = value_and_grad(fun, argnums, has_aux, op, name, compression, process_set)

    @functools.wraps(both)
    def distributed(*args: Any, **kwargs: Any) -> Any:
        value, gradients = both(*args, **kwargs)
        return (gradients, value[1]) if has_aux else gradients

    return distributed
