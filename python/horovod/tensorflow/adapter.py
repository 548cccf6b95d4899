"""What the core asks about TensorFlow's tensors, as far as a graph can answer: their element types.

Used by `ops` and `compression`. A symbolic tensor has no memory; addresses and shapes are the business of the operators
inside the core. So this is not a complete `horovod._core.tensors.adapter.Adapter`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import tensorflow as tf

from horovod._core.tensors import dtypes

__all__ = ["TypeAdapter", "adapter", "as_tensors"]

_NUMBER_OF: Final = {
    tf.uint8: dtypes.UINT8,
    tf.int8: dtypes.INT8,
    tf.uint16: dtypes.UINT16,
    tf.int16: dtypes.INT16,
    tf.int32: dtypes.INT32,
    tf.int64: dtypes.INT64,
    tf.float16: dtypes.FLOAT16,
    tf.float32: dtypes.FLOAT32,
    tf.float64: dtypes.FLOAT64,
    tf.bool: dtypes.BOOL,
    tf.bfloat16: dtypes.BFLOAT16,
    tf.uint32: dtypes.UINT32,
    tf.uint64: dtypes.UINT64,
    **{
        getattr(tf.dtypes.experimental, dtypes.NAMES[number]): number
        for number in (dtypes.FLOAT8_E4M3FN, dtypes.FLOAT8_E5M2)
        if hasattr(tf.dtypes.experimental, dtypes.NAMES[number])  # newer than the oldest supported TensorFlow
    },
}
_DTYPE_OF: Final = {number: dtype for dtype, number in _NUMBER_OF.items()}


class TypeAdapter:
    """Element types of tensors, eager or symbolic."""

    framework = "tensorflow"

    def dtype(self, tensor: Any) -> int:
        """Number of the element type (`horovod._core.tensors.dtypes`), or -1 for one that the core does not know."""
        return _NUMBER_OF.get(tensor.dtype, -1)

    def dtype_name(self, tensor: Any) -> str:
        """TensorFlow's name of the element type."""
        name: str = tensor.dtype.name
        return name

    def cast(self, tensor: Any, dtype: int) -> Any:
        """The tensor with another element type."""
        return tf.cast(tensor, _DTYPE_OF[dtype])


adapter: Final = TypeAdapter()


def as_tensors(values: Iterable[Any]) -> list[Any]:
    """`tf.convert_to_tensor` of each. It takes microseconds even where there is nothing to convert, so eager tensors
    are taken as they are; a graph has to see them all, those of other graphs too."""
    if tf.executing_eagerly():
        return [value if isinstance(value, tf.Tensor) else tf.convert_to_tensor(value) for value in values]
    return [tf.convert_to_tensor(value) for value in values]
