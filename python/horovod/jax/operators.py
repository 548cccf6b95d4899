"""Collectives inside functions that JAX compiles for the CPU or for CUDA: custom calls, which the core handles on
XLA's thread. On CUDA the computation goes on in the order of its stream.

XLA neither starts independent calls in a fixed order nor all of them. So the calls of one traced function hand on a
token, and what may be under way together is best made one call. Functions that are traced on their own and do not
depend on one another's results keep no order between them. Outside of functions a call waits for its end.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Callable, Final, Optional

import jax
import numpy as np

from horovod._core.life import engine_start, session
from horovod._core.life.engine_port import ALLREDUCE, BROADCAST
from horovod._core.operations.described_call import DescribedOperation, describe

try:
    from jax.extend.core import get_opaque_trace_state
except ImportError:  # before jax 0.7
    from jax.core import get_opaque_trace_state

__all__ = ["call", "call_after", "in_order", "reached", "tracing", "usable"]

_TARGET: Final = "hvd_collective"
_IN_PLACE: Final = (ALLREDUCE, BROADCAST)  # may have their results where their tensors lie


# How many functions inside one another keep their order; traces are held so, until the next calls.
_MOST_TRACES: Final = 8


class _Tokens(threading.local):
    """The tokens that the last calls made by this thread handed on, with the traces they belong to: of a function, then
    of one inside of it."""

    def __init__(self) -> None:
        self.of_traces: list[tuple[Any, Any]] = []

    def last_of(self, trace: Any) -> Any:
        """The token of this trace, whose inner functions have been traced by now; float32 0 if there is none."""
        for index, (known, token) in enumerate(self.of_traces):
            if known == trace:
                del self.of_traces[index + 1 :]
                return token
        return np.zeros((), np.float32)

    def keep(self, trace: Any, token: Any) -> None:
        """The trace's last call has handed on this token."""
        if self.of_traces and self.of_traces[-1][0] == trace:
            self.of_traces.pop()
        self.of_traces = [*self.of_traces[1 - _MOST_TRACES :], (trace, token)]


_tokens: Final = _Tokens()
_registered = False


def _outside() -> Any:
    """The trace state outside of any traced function. It is taken in a new thread, because a traced function may be
    importing this module."""
    states: list[Any] = []
    thread = threading.Thread(target=lambda: states.append(get_opaque_trace_state(convention="horovod")))
    thread.start()
    thread.join()
    return states[0]


_eager: Final = _outside()


def tracing() -> bool:
    """True while JAX traces a function on this thread: what is called now runs later, and perhaps many times."""
    return bool(get_opaque_trace_state(convention="horovod") != _eager)


def usable() -> bool:
    """True if JAX computes on one device, which the core reaches: the CPU, or a GPU of NVIDIA's, which the core then
    has in use in this life of the job and in later ones. What is on several devices XLA would reduce on each of them.
    Not collective.

    Raises:
        NotInitializedError: there is a GPU, and `init` has not been called.
        UnsupportedError: the settings ask for another way than the core has with tensors on GPUs.
    """
    if jax.device_count() != 1:
        return False
    (device,) = jax.devices()
    return device.platform == "cpu" or _uses(device)


def reached() -> bool:
    """True if the core handles the calls of functions compiled for the device that JAX uses if not told otherwise: a
    CPU, or this process's only GPU, which the core then has in use. Unlike `usable` it leaves to the program which of
    several CPU devices, and of several processes, an array is on. Not collective.

    Raises:
        As `usable`.
    """
    devices = jax.local_devices()
    return devices[0].platform == "cpu" or (len(devices) == 1 and _uses(devices[0]))


def _uses(device: Any) -> bool:
    """True if the core uses JAX's device, which is not a CPU."""
    if "cuda" not in device.client.platform_version:  # `platform` is "gpu" for AMD's as well
        return False
    from horovod._core.life.planes import gpu_plane  # not for programs without GPUs

    return gpu_plane.use_in_every_life(session.require(), device.local_hardware_id)


def call(
    operations: Sequence[DescribedOperation], tensors: Sequence[Any], results: Optional[Sequence[Any]] = None
) -> list[Any]:
    """Runs collectives as one custom call, after those that this traced function has called before. Collective, when
    the traced function runs. XLA leaves a call out whose results have no use, on all ranks alike.

    Args and errors: as of `call_after`.

    Returns:
        An array per tensor.
    """
    return in_order(lambda token, *given: call_after(token, operations, given, results), tensors)


def in_order(run: Callable[..., Sequence[Any]], tensors: Sequence[Any]) -> list[Any]:
    """Calls `run(token, *tensors)` with the token that the last call of the same trace handed on.

    Args:
        run: gives the next token and the results.
        tensors: what it works on.

    Returns:
        The results.
    """
    trace = get_opaque_trace_state(convention="horovod")
    token, *arrays = run(_tokens.last_of(trace), *tensors)
    if isinstance(token, jax.core.Tracer):
        _tokens.keep(trace, token)
    else:
        jax.block_until_ready(token)
    return list(arrays)


def call_after(
    token: Any,
    operations: Sequence[DescribedOperation],
    tensors: Sequence[Any],
    results: Optional[Sequence[Any]] = None,
) -> Sequence[Any]:
    """One custom call, where that is `usable` or `reached`.

    Args:
        token: what the call before it handed on; float32 0 if there is none.
        operations: describe the tensors in their order.
        tensors: JAX arrays, of any dtype that the core knows.
        results: shapes and dtypes (`jax.ShapeDtypeStruct`); None: those of the tensors, in whose memory allreduces and
            broadcasts are then done where XLA has no other use for it.

    Returns:
        The next token, then an array per tensor.

    Raises:
        JaxRuntimeError: a collective failed (see `described_call.failure_named_in`); where the results are waited for.
        ImportError: the core cannot be used.
    """
    _register()
    # A token's memory is handed on with it: on a GPU the core writes nothing there.
    aliases = {0: 0}
    if results is None:
        kinds = [operation.op_type for operation in operations for _ in operation.tensors]
        aliases.update({index: index for index, kind in enumerate(kinds, 1) if kind in _IN_PLACE})
    forms = [_form(tensor) for tensor in tensors] if results is None else results
    # Not has_side_effect=True: JAX would start the whole function by its slow path, and there is none without a use.
    foreign = jax.ffi.ffi_call(_TARGET, [jax.ShapeDtypeStruct((), np.float32), *forms], input_output_aliases=aliases)
    called: Sequence[Any] = foreign(token, *tensors, description=describe(operations))
    return called


def _form(tensor: Any) -> Any:
    return jax.ShapeDtypeStruct(tensor.shape, tensor.dtype)


def _register() -> None:
    global _registered
    if not _registered:
        # JAX keeps registrations for platforms that it does not have.
        for platform, handler in engine_start.jax_handlers().items():
            jax.ffi.register_ffi_target(_TARGET, jax.ffi.pycapsule(handler), platform=platform)
        _registered = True
