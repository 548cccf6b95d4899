"""Collectives inside functions that JAX compiles for the CPU: custom calls, which the core handles on XLA's thread.

XLA neither starts independent calls in a fixed order nor all of them. So the calls of one traced function hand on a
token, and what may be under way together is best made one call. Functions that are traced on their own and do not
depend on one another's results keep no order between them. Outside of functions a call waits for its end.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Final, Optional

import jax
import numpy as np

from horovod._core.life import engine_start
from horovod._core.operations.described_call import DescribedOperation, describe

try:
    from jax.extend.core import get_opaque_trace_state
except ImportError:  # before jax 0.7
    from jax.core import get_opaque_trace_state

__all__ = ["call", "usable"]

_TARGET: Final = "hvd_collective"


class _Last(threading.local):
    """The token that the last call made by this thread handed on, and the trace it belongs to. One trace is held so,
    until the next call."""

    trace: Any = None
    token: Any = None


_last: Final = _Last()
_registered = False


def usable() -> bool:
    """True if JAX computes on the CPU alone, on one device: what is on several XLA would reduce on each of them."""
    return bool(jax.default_backend() == "cpu" and jax.device_count() == 1)


def call(
    operations: Sequence[DescribedOperation], tensors: Sequence[Any], results: Optional[Sequence[Any]] = None
) -> list[Any]:
    """Runs collectives as one custom call. Collective, when the traced function runs. XLA leaves a call out whose
    results have no use, on all ranks alike.

    Args:
        operations: describe the tensors in their order.
        tensors: JAX arrays, of any dtype that the core knows.
        results: shapes and dtypes (`jax.ShapeDtypeStruct`); None: those of the tensors, whose memory is then reduced in
            place where XLA has no other use for it.

    Returns:
        An array per tensor.

    Raises:
        JaxRuntimeError: a collective failed (see `described_call.failure_told_by`); where the results are waited for.
        ImportError: the core cannot be used.
    """
    _register()
    aliases = {} if results is not None else {index: index for index in range(1, len(tensors) + 1)}
    forms = [_form(tensor) for tensor in tensors] if results is None else results
    trace = get_opaque_trace_state(convention="horovod")
    token = _last.token if _last.trace == trace else np.zeros((), np.float32)
    # Not has_side_effect=True: JAX would start the whole function by its slow path, and there is none without a use.
    foreign = jax.ffi.ffi_call(_TARGET, [jax.ShapeDtypeStruct((), np.float32), *forms], input_output_aliases=aliases)
    token, *arrays = foreign(token, *tensors, description=describe(operations))
    if isinstance(token, jax.core.Tracer):
        _last.trace, _last.token = trace, token
    else:
        token.block_until_ready()
    return list(arrays)


def _form(tensor: Any) -> Any:
    return jax.ShapeDtypeStruct(tensor.shape, tensor.dtype)


def _register() -> None:
    global _registered
    if not _registered:
        jax.ffi.register_ffi_target(_TARGET, jax.ffi.pycapsule(engine_start.jax_handler()), platform="cpu")
        _registered = True
