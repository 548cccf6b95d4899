"""CUDA tensors as the core needs them (`horovod._core.tensors.adapter.GpuTensors`). Used by `adapter`."""

from __future__ import annotations

from typing import Any, Callable, Final

import torch

from horovod._core.tensors.adapter import NO_MATCH

__all__ = ["PLAIN_TYPES", "CudaTensors", "gpu"]

# Only these are known to be backed by memory of their own. Subclasses may be (and then take the long way), or may be
# the stand-ins of a tracer, which have no memory at all.
PLAIN_TYPES: Final[frozenset[type]] = frozenset({torch.Tensor, torch.nn.Parameter})

# A build for AMD's GPUs calls its devices "cuda" as well; which ones they are, the core finds out
# (`horovod._core.gpu.platforms`).
_DRIVEN: Final = torch.version.cuda is not None or getattr(torch.version, "hip", None) is not None


def _current_stream(device: int) -> int:
    return int(torch.cuda.current_stream(device).cuda_stream)


# A fiftieth of the public function's time, which makes a Stream object (docs/gpu.md).
_raw_stream: Final[Callable[[int], int]] = getattr(torch._C, "_cuda_getCurrentRawStream", _current_stream)


class CudaTensors:
    """See the protocol, which says what each method means."""

    def device(self, tensor: torch.Tensor) -> int:
        return tensor.get_device() if _DRIVEN and tensor.is_cuda else -1

    def address(self, tensor: torch.Tensor) -> int:
        return tensor.data_ptr() if tensor.numel() else 0

    def address_if(self, tensor: Any, dtype: Any, shape: Any, device: int) -> int:
        if (
            type(tensor) in PLAIN_TYPES
            and tensor.is_cuda
            and tensor.get_device() == device
            and tensor.dtype is dtype
            and not tensor.is_nested
            and tensor.shape == shape
            and tensor.layout is torch.strided
            and tensor.is_contiguous()
            and not tensor.is_neg()
        ):
            return tensor.data_ptr()  # type: ignore[no-any-return]
        return NO_MATCH

    def stream(self, device: int) -> int:
        return _raw_stream(device)

    def empty(self, shape: tuple[int, ...], like: torch.Tensor) -> Any:
        return torch.empty(shape, dtype=like.dtype, device=like.device)

    def used_here(self, tensor: torch.Tensor) -> None:
        tensor.record_stream(torch.cuda.current_stream(tensor.device))


gpu: Final = CudaTensors()
