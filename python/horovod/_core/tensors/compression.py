"""Gradient compression: a cast to a smaller floating type before a reduction and back after it.

A compressor is a class with `compress(tensor) -> (tensor, context)` and `decompress(tensor, context)` that are called
on the class itself; an instance does as well. Users may bring their own, or derive from these. The casts are written
once over the adapter protocol; a framework module derives them with its own adapter.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Optional, Protocol, runtime_checkable

from horovod._core.errors import InvalidArgumentError
from horovod._core.tensors import dtypes

__all__ = [
    "BF16Compressor",
    "CastCompressor",
    "Compression",
    "Compressor",
    "FP16Compressor",
    "NoneCompressor",
    "check_compressor",
    "compressed",
    "is_compressor",
    "kind_of",
    "sends_copies",
]


@runtime_checkable
class Compressor(Protocol):
    """What the collectives ask of a compressor. Both methods are local."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """The tensor to send and whatever `decompress` needs."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """The tensor in its original form."""
        raise NotImplementedError


class TypeAdapter(Protocol):
    """The part of `horovod._core.tensors.adapter.Adapter` that a cast needs; symbolic tensors have no more."""

    def dtype(self, tensor: Any) -> int:
        """See `Adapter.dtype`."""
        ...

    def cast(self, tensor: Any, dtype: int) -> Any:
        """See `Adapter.cast`."""
        ...


class NoneCompressor(Compressor):
    """Sends tensors as they are."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """The tensor itself."""
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """The tensor itself."""
        return tensor


class CastCompressor(Compressor):
    """Sends floating tensors in a smaller floating type; leaves all others, and tensors that are no wider, alone.

    Attributes:
        adapter: of the framework.
        sent_dtype: number of the type to send (`horovod._core.tensors.dtypes`).
    """

    adapter: ClassVar[TypeAdapter]
    sent_dtype: ClassVar[int]

    @classmethod
    def compress(cls, tensor: Any) -> tuple[Any, Any]:
        """The tensor in the smaller type, and its original type's number (None: it was left alone)."""
        original = cls.adapter.dtype(tensor)
        if original not in dtypes.FLOATING or dtypes.ITEM_BYTES[original] <= dtypes.ITEM_BYTES[cls.sent_dtype]:
            return tensor, None
        return cls.adapter.cast(tensor, cls.sent_dtype), original

    @classmethod
    def decompress(cls, tensor: Any, ctx: Any) -> Any:
        """The tensor in its original type."""
        return tensor if ctx is None else cls.adapter.cast(tensor, ctx)


class FP16Compressor(CastCompressor):
    """Sends floating tensors as float16."""

    sent_dtype = dtypes.FLOAT16


class BF16Compressor(CastCompressor):
    """Sends floating tensors as bfloat16, which keeps the range of float32."""

    sent_dtype = dtypes.BFLOAT16


class Compression:
    """The compressors of one framework. A framework derives its own with its adapter; users may derive from that.

    Attributes:
        none: send as is.
        fp16: send floating tensors as float16.
        bf16: send floating tensors as bfloat16 (keeps the range of float32).
    """

    none: ClassVar[type[Compressor]] = NoneCompressor
    fp16: ClassVar[type[CastCompressor]]
    bf16: ClassVar[type[CastCompressor]]

    def __init_subclass__(cls, adapter: Optional[TypeAdapter] = None, **more: Any) -> None:
        super().__init_subclass__(**more)
        if adapter is not None:
            cls.fp16 = _of_framework(FP16Compressor, adapter, cls.__module__)
            cls.bf16 = _of_framework(BF16Compressor, adapter, cls.__module__)


def is_compressor(given: Any) -> bool:
    """True for a class or an object with the methods of a `Compressor`."""
    # Not isinstance(): torch.compile traces this.
    return hasattr(given, "compress") and hasattr(given, "decompress")


def check_compressor(given: Any) -> None:
    """Raises InvalidArgumentError unless it is a compressor."""
    if not is_compressor(given):
        raise InvalidArgumentError(
            "compression must be hvd.Compression.none, .fp16 or .bf16, or have compress() and decompress(). "
            f"Received: {given!r}."
        )


def compressed(tensors: Iterable[Any], compressor: Compressor) -> list[tuple[Any, Any]]:
    """What `compress` gives for each of the tensors.

    Raises:
        InvalidArgumentError: no compressor.
    """
    check_compressor(compressor)
    return [compressor.compress(tensor) for tensor in tensors]


def kind_of(compressor: Compressor) -> type:
    """The class of a compressor, which is given as a class or an instance. One derived from ours is not ours."""
    return compressor if isinstance(compressor, type) else type(compressor)


def sends_copies(compressor: Compressor) -> bool:
    """True for our casts: what they send is the tensor itself or a copy that nobody else holds. A compressor of the
    user's own may send a view of the tensor, or memory that it keeps."""
    compress = getattr(kind_of(compressor), "compress", None)
    return getattr(compress, "__func__", None) is CastCompressor.compress.__func__  # type: ignore[attr-defined]


def _of_framework(kind: type[CastCompressor], adapter: TypeAdapter, module: str) -> type[CastCompressor]:
    # Pickled by its name, under which the framework's module offers it.
    return type(kind.__name__, (kind,), {"adapter": adapter, "__module__": module, "__doc__": kind.__doc__})
