"""Gradient compression: a cast to a smaller floating type before a reduction and back after it.

Written once over the adapter protocol; a framework module makes its public namespace with `Compression(adapter)`, which
offers `none`, `fp16` and `bf16`. A compressor is anything with `compress(tensor) -> (tensor, context)` and
`decompress(tensor, context)`; users may bring their own.
"""

from __future__ import annotations

from typing import Any, Protocol

from horovod._core import dtypes

__all__ = ["CastCompressor", "Compression", "Compressor", "NoneCompressor", "none"]


class Compressor(Protocol):
    """What the collectives ask of a compressor. Both methods are local."""

    def compress(self, tensor: Any) -> tuple[Any, Any]:
        """The tensor to send and whatever `decompress` needs."""
        ...

    def decompress(self, tensor: Any, ctx: Any) -> Any:
        """The tensor in its original form."""
        ...


class TypeAdapter(Protocol):
    """The part of `horovod._core.adapter.Adapter` that a cast needs; symbolic tensors have no more."""

    def dtype(self, tensor: Any) -> int:
        """See `Adapter.dtype`."""
        ...

    def cast(self, tensor: Any, dtype: int) -> Any:
        """See `Adapter.cast`."""
        ...


class NoneCompressor:
    """Sends tensors as they are."""

    def compress(self, tensor: Any) -> tuple[Any, Any]:
        """The tensor itself."""
        return tensor, None

    def decompress(self, tensor: Any, ctx: Any) -> Any:
        """The tensor itself."""
        return tensor

    def __repr__(self) -> str:
        return "Compression.none"


class CastCompressor:
    """Sends floating tensors in a 16-bit floating type; leaves all others, and tensors that are no wider, alone.

    Args:
        adapter: of the framework.
        dtype: number of the type to send (`horovod._core.dtypes`).
    """

    def __init__(self, adapter: TypeAdapter, dtype: int) -> None:
        self._adapter = adapter
        self._dtype = dtype

    def compress(self, tensor: Any) -> tuple[Any, Any]:
        """The tensor in the smaller type, and its original type's number (None: it was left alone)."""
        original = self._adapter.dtype(tensor)
        if original not in dtypes.FLOATING or dtypes.ITEM_BYTES[original] <= dtypes.ITEM_BYTES[self._dtype]:
            return tensor, None
        return self._adapter.cast(tensor, self._dtype), original

    def decompress(self, tensor: Any, ctx: Any) -> Any:
        """The tensor in its original type."""
        return tensor if ctx is None else self._adapter.cast(tensor, ctx)

    def __repr__(self) -> str:
        return f"Compression.{'fp16' if self._dtype == dtypes.FLOAT16 else 'bf16'}"


none = NoneCompressor()


class Compression:
    """The compressors of one framework.

    Attributes:
        none: send as is.
        fp16: send floating tensors as float16.
        bf16: send floating tensors as bfloat16 (keeps the range of float32).
    """

    none = none

    def __init__(self, adapter: TypeAdapter) -> None:
        self.fp16 = CastCompressor(adapter, dtypes.FLOAT16)
        self.bf16 = CastCompressor(adapter, dtypes.BFLOAT16)
