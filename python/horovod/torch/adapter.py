"""The adapter of PyTorch: answers the core's questions about torch tensors (`horovod._core.tensors.adapter.Adapter`).

Used by `operators`, which makes the collectives of it, and by others that ask about tensors. The core reaches tensors
on a CUDA device where they lie (`gpu`); those of other devices are staged through the host's memory. It keeps no state
of an operation and calls no engine; autograd and torch.compile are the business of `ops`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch

from horovod._core.errors import InvalidArgumentError
from horovod._core.tensors import dtypes
from horovod._core.tensors.adapter import LaneTerms, ResultBlock
from horovod.torch.gpu import gpu

__all__ = ["PLAIN_TYPES", "TorchAdapter", "adapter", "is_sharded"]

# Only these are known to be backed by memory of their own. Subclasses may be (and then take the plain way), or may be
# the stand-ins of a tracer, which have no memory at all.
PLAIN_TYPES: Final[frozenset[type]] = frozenset({torch.Tensor, torch.nn.Parameter})

_BY_NAME = {
    "uint8": dtypes.UINT8,
    "int8": dtypes.INT8,
    "uint16": dtypes.UINT16,
    "int16": dtypes.INT16,
    "int32": dtypes.INT32,
    "int64": dtypes.INT64,
    "float16": dtypes.FLOAT16,
    "float32": dtypes.FLOAT32,
    "float64": dtypes.FLOAT64,
    "bool": dtypes.BOOL,
    "bfloat16": dtypes.BFLOAT16,
    "uint32": dtypes.UINT32,
    "uint64": dtypes.UINT64,
    "float8_e4m3fn": dtypes.FLOAT8_E4M3FN,
    "float8_e5m2": dtypes.FLOAT8_E5M2,
}
# uint16, uint32 and uint64 are newer than the oldest supported torch.
_NUMBER_OF = {getattr(torch, name): number for name, number in _BY_NAME.items() if hasattr(torch, name)}
_DTYPE_OF = {number: dtype for dtype, number in _NUMBER_OF.items()}
# What the lane reads tensors by; it is newer than the oldest supported torch.
_LANE_READS: Final = hasattr(torch.Tensor, "__dlpack_c_exchange_api__")


def _prototype(shape: tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
    made = torch.empty(shape, dtype=like.dtype, device=like.device)
    made.untyped_storage().resize_(0)
    return made


def is_sharded(tensor: torch.Tensor) -> bool:
    """True for a DTensor of torch.distributed, without importing that."""
    return type(tensor) not in PLAIN_TYPES and hasattr(tensor, "device_mesh")


class TorchAdapter:
    """See `horovod._core.tensors.adapter.Adapter`, which says what each method means."""

    framework = "torch"
    maker = "torch.tensor"
    lane_terms = (
        LaneTerms(tuple(PLAIN_TYPES), torch.Tensor.is_neg, torch.empty_like, _prototype) if _LANE_READS else None
    )
    gpu = gpu

    def owns(self, value: Any) -> bool:
        return isinstance(value, torch.Tensor)

    def dtype(self, tensor: torch.Tensor) -> int:
        return _NUMBER_OF.get(tensor.dtype, -1)

    def dtype_name(self, tensor: torch.Tensor) -> str:
        return str(tensor.dtype).replace("torch.", "")

    def shape(self, tensor: torch.Tensor) -> tuple[int, ...]:
        return tuple(tensor.shape)

    def device(self, tensor: torch.Tensor) -> str:
        return "cpu" if tensor.is_cpu else str(tensor.device)

    def unfit(self, tensor: torch.Tensor) -> str:
        if is_sharded(tensor):
            return (
                "does not take a DTensor, of which each rank holds a shard, as FSDP2 and tensor parallelism make them. "
                "Such parameters are reduced by torch.distributed: use it without Horovod, or give "
                "tensor.to_local() or tensor.full_tensor()."
            )
        if tensor.is_nested:
            return (
                "needs a tensor of one shape. Received a nested one; send its parts, or tensor.to_padded_tensor(0.0)."
            )
        if tensor.is_meta:
            return (
                "needs a tensor with values. Received one on the device 'meta', which has none; move the model to its "
                "device first, with model.to_empty(device=...)."
            )
        if tensor.is_complex():
            return (
                f"does not take {self.dtype_name(tensor)}. Give torch.view_as_real(tensor), which holds the real and "
                "imaginary parts in the same memory."
            )
        if tensor.layout is torch.strided:
            return ""
        return (
            f"needs a dense tensor. Received layout {tensor.layout}; use hvd.sparse_allreduce_async for gradients in "
            "COO format, or tensor.to_dense()."
        )

    def is_contiguous(self, tensor: torch.Tensor) -> bool:
        # A negated or conjugated view says it is contiguous, but its memory holds other values.
        return (
            tensor.layout is torch.strided
            and not tensor.is_nested
            and tensor.is_contiguous()
            and not tensor.is_neg()
            and not tensor.is_conj()
        )

    def is_writable(self, tensor: torch.Tensor) -> bool:
        return True

    def address(self, tensor: torch.Tensor) -> int:
        return tensor.data_ptr() if tensor.numel() else 0

    def empty_like(self, tensor: torch.Tensor) -> torch.Tensor:
        if type(tensor) in PLAIN_TYPES:
            return torch.empty_like(tensor)
        return torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)

    def contiguous(self, tensor: torch.Tensor) -> torch.Tensor:
        if self.unfit(tensor):
            return tensor
        return tensor.detach().resolve_neg().resolve_conj().contiguous()

    def to_host(self, tensor: torch.Tensor) -> torch.Tensor:
        source = tensor.detach().resolve_neg().contiguous()
        host = torch.empty(source.shape, dtype=source.dtype, pin_memory=source.is_cuda)
        # Not asynchronous: the engine reads the memory as soon as the operation is submitted.
        host.copy_(source)
        return host

    def from_host(self, host: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        return host if like.is_cpu else host.to(like.device)

    def copy_into(self, target: torch.Tensor, source: torch.Tensor) -> None:
        target.detach().copy_(source)

    def wrap(self, block: ResultBlock, like: torch.Tensor) -> torch.Tensor:
        dtype = _DTYPE_OF[block.dtype]
        if not block.nbytes:
            return torch.empty(block.shape, dtype=dtype)
        flat = torch.frombuffer(block.buffer(), dtype=dtype)
        return flat if len(block.shape) == 1 else flat.view(block.shape)

    def from_values(self, values: Sequence[int], like: torch.Tensor) -> torch.Tensor:
        if not like.is_cuda:
            return torch.tensor(list(values), dtype=torch.int32, device=like.device)
        # Out of pinned memory, or the host would wait for the stream.
        return torch.tensor(list(values), dtype=torch.int32, pin_memory=True).to(like.device, non_blocking=True)

    def values_of(self, tensor: torch.Tensor) -> list[int]:
        if tensor.dim() != 1 or tensor.is_floating_point() or tensor.is_complex() or tensor.dtype is torch.bool:
            raise InvalidArgumentError(
                f"Splits must be a one-dimensional tensor of integers. Received: {self.dtype_name(tensor)} "
                f"{list(tensor.shape)}."
            )
        values: list[int] = tensor.tolist()
        return values

    def cast(self, tensor: torch.Tensor, dtype: int) -> torch.Tensor:
        return tensor.to(_DTYPE_OF[dtype])

    def slot_key(self, tensor: torch.Tensor) -> int:
        return tensor.data_ptr() if tensor.numel() else id(tensor)


adapter = TorchAdapter()
