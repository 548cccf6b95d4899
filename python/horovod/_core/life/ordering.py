"""What is left to do when an operation on a GPU is done, which means that it is on its way (docs/design/0022).

Used by `handles`, which skips it where the engine has done it already, and by `tensor_locations`, which makes it.
"""

from __future__ import annotations

from typing import Any, Final

from horovod._core.life.session import Session
from horovod._core.tensors.adapter import GpuTensors

__all__ = ["Ordering"]


class Ordering:
    """A `handles.Finisher`: the result is ordered before what the caller's stream does next.

    The engine orders the stream on which the operation was submitted when its handle is released. When a caller waits
    for it on another stream, that one is ordered as well, and the framework learns that the result is in use there: its
    memory belongs to the first.

    Args:
        gpu: of the framework.
        device: on which the result lies.
        stream: on which the operation was submitted.
        result: a tensor, or a list of them.
    """

    __slots__ = ("_device", "_gpu", "_result", "_stream")

    def __init__(self, gpu: GpuTensors, device: int, stream: int, result: Any) -> None:
        self._gpu: Final = gpu
        self._device: Final = device
        self._stream: Final = stream
        self._result: Final = result

    def needless(self) -> bool:
        """True if releasing the handle is enough for the calling thread."""
        return self._gpu.stream(self._device) == self._stream

    def __call__(self, owner: Session, handle: int) -> Any:
        if not self.needless():
            owner.engine.gpu.order(handle, self._gpu.stream(self._device))
            for tensor in self._result if isinstance(self._result, list) else (self._result,):
                self._gpu.used_here(tensor)
        return self._result
