"""Where the engine gets the tensors of a call: as they lie, in the host's memory or on this process' GPU, or copied to
the host's memory.

An operation on a GPU is done when it is on its way: its results are ordered before what the caller's stream does next,
and the host waits for nothing (docs/design/0022). Used by `tensor_operations`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from horovod._core.life import gpu_plane, handles, session
from horovod._core.tensors.adapter import Adapter, GpuTensors
from horovod._native import abi

__all__ = ["Placed", "device_results", "ordered", "place"]

_ON_HOST = -1


class Placed(NamedTuple):
    """The tensors of a call as the engine gets them.

    Attributes:
        tensors: themselves, or copies.
        copied: some are copies in the host's memory.
        device: the GPU on which all of them lie, as CUDA counts; -1: they lie in the host's memory.
        stream: on which they are being made; 0 also for the host.
    """

    tensors: list[Any]
    copied: bool
    device: int
    stream: int

    @property
    def on_gpu(self) -> bool:
        return self.device != _ON_HOST

    @property
    def plain(self) -> bool:
        """They lie in the host's memory and are no copies: the call can be prepared."""
        return not self.copied and not self.on_gpu

    def tell(self, members: Iterable[abi.HvdOp]) -> None:
        """Notes in the op structs where their tensors lie."""
        for member in members:
            member.place = self.device + 1
            member.stream = self.stream


def place(adapter: Adapter, tensors: list[Any]) -> Placed:
    """The tensors as the engine can have them; copied if they lie on devices that it cannot use, or on several.

    Raises:
        UnsupportedError: the settings ask for a way that the core has not.
    """
    gpu = adapter.gpu
    if gpu is not None:
        devices = {gpu.device(tensor) for tensor in tensors}
        if len(devices) == 1:
            (device,) = devices
            if device != _ON_HOST and gpu_plane.use(session.require(), device):
                return Placed(tensors, False, device, gpu.stream(device))
    hosts = [tensor if adapter.device(tensor) == "cpu" else adapter.to_host(tensor) for tensor in tensors]
    return Placed(hosts, any(host is not tensor for host, tensor in zip(hosts, tensors)), _ON_HOST, 0)


def ordered(gpu: GpuTensors, device: int, result: Any) -> handles.Finisher:
    """After an operation that leaves its results in the caller's tensors: `result`, which the caller's stream may use
    from now on."""

    def finisher(owner: session.Session, handle: int) -> Any:
        owner.engine.gpu.order(handle, gpu.stream(device))
        return result

    return finisher


def device_results(gpu: GpuTensors, likes: Sequence[Any], handle: int, owner: session.Session) -> list[Any]:
    """Results that the core has allocated on the GPU, as tensors of the framework's own memory."""
    stream = gpu.stream(gpu.device(likes[0]))
    port = owner.engine.gpu
    port.order(handle, stream)
    results = []
    for index, like in enumerate(likes):
        nbytes, shape = port.describe_result(handle, index)
        result = gpu.empty(shape, like)
        port.copy_result(handle, index, gpu.address(result), nbytes, stream)
        results.append(result)
    return results
