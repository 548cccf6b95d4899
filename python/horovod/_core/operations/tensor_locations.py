"""Where the engine gets the tensors of a call: as they lie, in the host's memory or on this process' GPU, or copied to
the host's memory. Used by `tensor_operations`.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

from horovod._core.callers import users_level
from horovod._core.life import handles, session
from horovod._core.life.ordering import Ordering
from horovod._core.operations.submission import Call, submit
from horovod._core.tensors.adapter import Adapter, GpuTensors
from horovod._native import abi

__all__ = ["Located", "device_results", "locate"]

_ELSEWHERE = -1
# The warning is given once for each reason, in a process.
_warned: set[str] = set()


class Located(NamedTuple):
    """The tensors of a call as the engine gets them.

    Attributes:
        tensors: themselves, or copies.
        copied: some are copies in the host's memory.
        gpu, device: where all of them lie; None: in the host's memory.
    """

    tensors: list[Any]
    copied: bool
    gpu: Optional[GpuTensors] = None
    device: int = _ELSEWHERE

    @property
    def on_gpu(self) -> bool:
        """Whether the core has them on the GPU, and leaves its results there."""
        return self.gpu is not None

    def submit(
        self,
        call: Call,
        members: Sequence[abi.HvdOp],
        keep: Any,
        result: Any,
        finisher: Optional[handles.Finisher] = None,
        waits: bool = False,
    ) -> handles.Pending:
        """See `submission.submit`. On a GPU the operation begins after what the caller's stream does until now."""
        if self.gpu is not None:
            stream = self.gpu.stream(self.device)
            for member in members:
                member.place, member.stream = self.device + 1, stream
            if finisher is None and not waits:  # who waits at once does so on this stream
                finisher = Ordering(self.gpu, self.device, stream, result)
        return submit(handles.Pending(call.session, 0, call.what, keep, result, finisher), members, waits)


def locate(adapter: Adapter, tensors: list[Any]) -> Located:
    """The tensors as the engine can have them; copied if they lie on devices that it cannot use, or on several.

    Raises:
        UnsupportedError: the settings ask for a way that the core has not.
    """
    gpu = adapter.gpu
    if gpu is not None:
        devices = {gpu.device(tensor) for tensor in tensors}
        if len(devices) == 1:
            (device,) = devices
            if device != _ELSEWHERE and not _why_not(device):
                return Located(tensors, False, gpu, device)
    hosts = [tensor if adapter.device(tensor) == "cpu" else _staged(adapter, tensor) for tensor in tensors]
    return Located(hosts, any(host is not tensor for host, tensor in zip(hosts, tensors)))


def _why_not(device: int) -> str:
    """Why the core cannot use a GPU; empty: it can."""
    from horovod._core.life.planes import gpu_plane  # not for programs without GPUs

    return gpu_plane.why_not(session.require(), device)


def _staged(adapter: Adapter, tensor: Any) -> Any:
    gpu, why = adapter.gpu, "the core reaches tensors on NVIDIA's and AMD's GPUs only"
    device = _ELSEWHERE if gpu is None else gpu.device(tensor)
    if device != _ELSEWHERE:
        why = _why_not(device) or "the tensors of this call lie on several devices"
    if why not in _warned:
        _warned.add(why)
        warnings.warn(
            f"Tensors on {adapter.device(tensor)} are copied to host memory and back for every collective: {why}. "
            "Results are correct; expect the speed of the bus.",
            stacklevel=users_level(),
        )
    return adapter.to_host(tensor)


def device_results(gpu: GpuTensors, likes: Sequence[Any], handle: int, owner: session.Session) -> list[Any]:
    """Results that the core has allocated on the GPU, as tensors of the framework's own memory, made on its current
    stream."""
    stream = gpu.stream(gpu.device(likes[0]))
    port = owner.engine.gpu
    results = []
    for index, like in enumerate(likes):
        nbytes, shape = port.describe_result(handle, index)
        result = gpu.empty(shape, like)
        port.copy_result(handle, index, gpu.address(result), nbytes, stream)
        results.append(result)
    return results
