"""The adapter of plain bytes: `bytearray`s as one-dimensional uint8 tensors, for pickled objects. Used by `objects`;
needs no framework."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Final

from horovod._core.tensors import dtypes
from horovod._core.tensors.adapter import ResultBlock

__all__ = ["ByteAdapter", "adapter"]


class ByteAdapter:
    """See `horovod._core.tensors.adapter.Adapter`, which says what each method means. Results are memoryviews."""

    framework = "bytes"
    maker = "bytearray"
    lane_terms = None
    gpu = None

    def owns(self, value: Any) -> bool:
        return isinstance(value, bytearray)

    def dtype(self, tensor: bytearray) -> int:
        return dtypes.UINT8

    def dtype_name(self, tensor: bytearray) -> str:
        return "uint8"

    def shape(self, tensor: bytearray) -> tuple[int, ...]:
        return (len(tensor),)

    def device(self, tensor: bytearray) -> str:
        return "cpu"

    def unfit(self, tensor: bytearray) -> str:
        return ""

    def is_contiguous(self, tensor: bytearray) -> bool:
        return True

    def is_writable(self, tensor: bytearray) -> bool:
        return True

    def address(self, tensor: bytearray) -> int:
        # The caller keeps the bytearray and does not resize it before the operation is done.
        return ctypes.addressof(ctypes.c_ubyte.from_buffer(tensor)) if tensor else 0

    def empty_like(self, tensor: bytearray) -> bytearray:
        return bytearray(len(tensor))

    def contiguous(self, tensor: bytearray) -> bytearray:
        return tensor

    def to_host(self, tensor: bytearray) -> bytearray:
        return bytearray(tensor)

    def from_host(self, host: Any, like: bytearray) -> Any:
        return host

    def copy_into(self, target: bytearray, source: Any) -> None:
        target[:] = source

    def wrap(self, block: ResultBlock, like: bytearray) -> memoryview:
        return memoryview(block.buffer()).cast("B")

    def from_values(self, values: Sequence[int], like: bytearray) -> list[int]:
        return list(values)

    def values_of(self, tensor: bytearray) -> list[int]:
        return list(tensor)

    def cast(self, tensor: bytearray, dtype: int) -> bytearray:
        return tensor

    def slot_key(self, tensor: bytearray) -> int:
        return id(tensor)


adapter: Final = ByteAdapter()
