"""Which way an operation goes: at once through the host where the arrays have values, as a custom call where JAX traces
a function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from horovod._core.errors import UnsupportedError
from horovod._core.life.engine_port import ALLREDUCE
from horovod.jax import operators
from horovod.jax.operation import ELEMENTWISE, Operation

__all__ = ["on_the_host", "run_after"]


def run_after(operation: Operation, token: Any, arrays: Sequence[Any]) -> tuple[Any, ...]:
    """Runs an operation, without gradients. Collective.

    Args:
        operation: on at least one array.
        token: see `operators.call_after`.
        arrays: traced, or with values.

    Returns:
        The next token, then the results.
    """
    if not operators.tracing():
        return (token, *on_the_host(operation, arrays))
    return tuple(_batched(operation)(token, *arrays))


def on_the_host(operation: Operation, arrays: Sequence[Any]) -> list[Any]:
    """Runs it at once. Collective. Results are where the arrays are, if those have been put somewhere."""
    hosts = operation.on_the_host([np.asarray(array) for array in arrays])
    alike = operation.op_type in ELEMENTWISE
    places = [array.sharding if alike and getattr(array, "committed", False) else None for array in arrays]
    return [jax.device_put(host, place) for host, place in zip(hosts, places)]


def _batched(operation: Operation) -> Any:
    """The custom call, with a rule for `jax.vmap`: the batch is part of larger arrays, in one call."""

    @jax.custom_batching.custom_vmap
    def call(token: Any, *arrays: Any) -> Any:
        return tuple(_custom_call(operation, token, arrays))

    @call.def_vmap
    def batch(size: int, batched: Any, token: Any, *arrays: Any) -> Any:
        if batched[0]:
            token = token[0]
        if operation.op_type == ALLREDUCE and operation.op.row.directions:
            raise UnsupportedError(
                f"{operation.what} with op=hvd.{operation.op} cannot go through jax.vmap: each array is combined by "
                "its direction, and a batch would count as one. Call it once for each, or use op=hvd.Average."
            )
        if operation.op_type in ELEMENTWISE:
            return run_after(operation, token, arrays), (False, *batched[1:])
        # They work on the first dimension, so that the batch goes last.
        moved = [jnp.moveaxis(array, 0, -1) if one else array for array, one in zip(arrays, batched[1:])]
        token, *results = run_after(operation, token, moved)
        back = [jnp.moveaxis(result, -1, 0) if one else result for result, one in zip(results, batched[1:])]
        return (token, *back), (False, *batched[1:])

    return call


def _custom_call(operation: Operation, token: Any, arrays: Sequence[Any]) -> Sequence[Any]:
    if not operators.reached():
        raise UnsupportedError(
            f"{operation.what} in a compiled function needs a CPU, or one GPU of NVIDIA's per process. This process "
            f"has {', '.join(map(str, jax.local_devices()))}. Show each rank its GPU (CUDA_VISIBLE_DEVICES), or call "
            "it outside of compiled functions."
        )
    results = [jax.ShapeDtypeStruct(operation.result_shape(n, array), array.dtype) for n, array in enumerate(arrays)]
    in_place = operation.op_type in ELEMENTWISE
    return operators.call_after(token, operation.described(arrays, results), arrays, None if in_place else results)
