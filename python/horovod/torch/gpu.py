"""CUDA tensors as the core needs them (`horovod._core.tensors.adapter.GpuTensors`). Used by `adapter`."""

from __future__ import annotations

from typing import Any, Callable, Final

import torch

__all__ = ["CudaTensors", "gpu"]

# A build for AMD's GPUs calls its devices "cuda" as well; which ones they are, the core finds out
# (`horovod._core.gpu.platforms`).
_DRIVEN: Final = torch.version.cuda is not None or getattr(torch.version, "hip", None) is not None


def _current_stream(device: int) -> int:
    return int(torch.cuda.current_stream(device).cuda_stream)


# About a fortieth of the public function's time, which makes a Stream object (docs/gpu.md).
_raw_stream: Final[Callable[[int], int]] = getattr(torch._C, "_cuda_getCurrentRawStream", _current_stream)


class CudaTensors:
    """See the protocol, which says what each method means."""

    def device(self, tensor: torch.Tensor) -> int:
        return tensor.get_device() if _DRIVEN and tensor.is_cuda else -1

    def address(self, tensor: torch.Tensor) -> int:
        return tensor.data_ptr() if tensor.numel() else 0

    stream = staticmethod(_raw_stream)  # the lane calls it: without a frame

    def empty(self, shape: tuple[int, ...], like: torch.Tensor) -> Any:
        return torch.empty(shape, dtype=like.dtype, device=like.device)

    def used_here(self, tensor: torch.Tensor) -> None:
        tensor.record_stream(torch.cuda.current_stream(tensor.device))


gpu: Final = CudaTensors()
