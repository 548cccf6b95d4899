"""A prepared call whose tensors lie on this process' GPU.

It differs from one in the host's memory in three things: every use has the framework's current stream of the moment;
what is done is only on its way, so the engine's handle is always to be released, which orders that stream; and results
that the core has allocated are copied into the framework's own memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable, Final, Optional

from horovod._core.life import handles, session
from horovod._core.life.engine_port import OK
from horovod._core.life.ordering import Ordering
from horovod._core.operations.prepared import Prepared
from horovod._core.tensors.adapter import Adapter, GpuTensors
from horovod._native import abi

__all__ = ["PreparedOnGpu", "device_results"]

_NO_DOOR: Final = (0, 0, 0, 0)


class PreparedOnGpu(Prepared):
    """See `Prepared`.

    Args:
        current, what, members: of a `Prepared`; where the tensors lie is filled in here.
        gpu: of the framework.
        device: as CUDA counts in this process.
    """

    __slots__ = ("_device", "_gpu")
    on_gpu = True

    def __init__(
        self, current: session.Session, what: str, members: Sequence[abi.HvdOp], gpu: GpuTensors, device: int
    ) -> None:
        for member in members:
            member.place = device + 1
        super().__init__(current, what, members)
        self._gpu = gpu
        self._device = device
        self.arm(self.address, self.n, self.handle_address, _NO_DOOR)  # a lane knows no streams

    def submit(
        self, keep: Any, result: Any, finisher: Optional[handles.Finisher] = None, waits: bool = False
    ) -> handles.Pending:
        stream = self._take_stream()
        if finisher is None and not waits:  # who waits at once does so on this stream
            finisher = Ordering(self._gpu, self._device, stream, result)
        return super().submit(keep, result, finisher, waits)

    def run_now(self, keep: Any) -> None:
        try:
            status = self.run_once()
            if status != OK:
                self.go_on(status, keep)
            elif self.handle.value:
                self.session.engine.release(self.handle.value)
                self.handle.value = 0
        except BaseException:  # a signal handler's, for one
            self.rescue(keep)
            raise

    def run_once(self) -> int:
        self._take_stream()
        return super().run_once()

    def take_other(self, status: int, tensor: Any, output: Any, adapter: Adapter) -> Any:
        def finisher(owner: session.Session, handle: int) -> Any:
            return device_results(self._gpu, [tensor], handle, owner)[0]

        return self.go_on(status, tensor, finisher)

    def _address_if(self, adapter: Adapter) -> Callable[[Any, Any, Any], int]:
        address_if, device = self._gpu.address_if, self._device
        return lambda tensor, dtype, shape: address_if(tensor, dtype, shape, device)

    def _take_stream(self) -> int:
        """Has the operation begin after what the caller's stream does until now."""
        stream = self._gpu.stream(self._device)
        if self.n == 1:
            self.first.stream = stream
        else:
            for member in self.members:
                member.stream = stream
        return stream


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
