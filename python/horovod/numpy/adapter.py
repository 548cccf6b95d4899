"""The adapter of NumPy: the reference implementation of `Adapter`, and what `horovod.numpy` uses.

Arrays are in host memory, so nothing is staged. bfloat16 and the 8-bit floats, which NumPy lacks, are those of
`ml_dtypes` when that package is installed.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any, Final, Optional

import numpy as np

from horovod._core.errors import InvalidArgumentError
from horovod._core.tensors import dtypes
from horovod._core.tensors.adapter import LaneTerms, ResultBlock

__all__ = ["NumpyAdapter", "adapter"]

_OF_ML_DTYPES: Final = {dtypes.NAMES[n]: n for n in (dtypes.BFLOAT16, dtypes.FLOAT8_E4M3FN, dtypes.FLOAT8_E5M2)}
_BY_NAME: Final = {np.dtype(name): number for number, name in enumerate(dtypes.NAMES) if name not in _OF_ML_DTYPES}


def _of_ml_dtypes(name: str) -> Optional[np.dtype[Any]]:
    """Its dtype of this name, or None where there is none."""
    try:
        import ml_dtypes
    except ImportError:
        return None
    found = getattr(ml_dtypes, name, None)
    return None if found is None else np.dtype(found)


def _prototype(shape: tuple[int, ...], like: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    # One element with the strides of many, of which only the form is ever looked at.
    strides = [like.itemsize * math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    # Of plain bytes at first: NumPy cannot name each type of ml_dtypes to itself.
    plain = np.lib.stride_tricks.as_strided(np.empty(1, f"V{like.itemsize}"), shape, strides)
    return plain.view(like.dtype)


class NumpyAdapter:
    """Answers the core's questions about `numpy.ndarray` (see `horovod._core.tensors.adapter.Adapter`)."""

    framework = "numpy"
    maker = "numpy.asarray"
    lane_terms = LaneTerms((np.ndarray,), None, np.empty_like, _prototype)
    gpu = None

    def owns(self, value: Any) -> bool:
        return isinstance(value, np.ndarray)

    def dtype(self, tensor: np.ndarray[Any, Any]) -> int:
        number = _BY_NAME.get(tensor.dtype)
        if number is not None:
            return number
        # An array of such a dtype can only exist once ml_dtypes has been imported.
        return _OF_ML_DTYPES.get(tensor.dtype.name, -1) if "ml_dtypes" in sys.modules else -1

    def dtype_name(self, tensor: np.ndarray[Any, Any]) -> str:
        return tensor.dtype.name if tensor.dtype.isnative else str(tensor.dtype)

    def shape(self, tensor: np.ndarray[Any, Any]) -> tuple[int, ...]:
        shape: tuple[int, ...] = tensor.shape
        return shape

    def device(self, tensor: np.ndarray[Any, Any]) -> str:
        return "cpu"

    def unfit(self, tensor: np.ndarray[Any, Any]) -> str:
        if not isinstance(tensor, np.ma.MaskedArray):
            return ""
        return "needs an array without a mask. Received a MaskedArray; array.filled(value) makes a plain one."

    def is_contiguous(self, tensor: np.ndarray[Any, Any]) -> bool:
        return tensor.flags.c_contiguous

    def is_writable(self, tensor: np.ndarray[Any, Any]) -> bool:
        return tensor.flags.writeable

    def address(self, tensor: np.ndarray[Any, Any]) -> int:
        return tensor.ctypes.data if tensor.size else 0

    def empty_like(self, tensor: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.empty(tensor.shape, tensor.dtype)

    def contiguous(self, tensor: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        # ascontiguousarray would make a scalar one-dimensional.
        return tensor if tensor.flags.c_contiguous else tensor.copy(order="C")

    def to_host(self, tensor: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return tensor.copy(order="C")

    def from_host(self, host: np.ndarray[Any, Any], like: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return host

    def copy_into(self, target: np.ndarray[Any, Any], source: np.ndarray[Any, Any]) -> None:
        target[...] = source

    def wrap(self, block: ResultBlock, like: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        # frombuffer refuses memory without bytes.
        if not block.nbytes:
            return np.empty(block.shape, like.dtype)
        memory: Any = block.buffer()
        flat: np.ndarray[Any, Any] = np.frombuffer(memory, dtype=like.dtype)
        return flat.reshape(block.shape)

    def from_values(self, values: Sequence[int], like: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.array(values, dtype=np.int32)

    def values_of(self, tensor: np.ndarray[Any, Any]) -> list[int]:
        if tensor.ndim != 1 or tensor.dtype.kind not in "iu":
            raise InvalidArgumentError(
                f"Splits must be a one-dimensional array of integers. Received: {tensor.dtype} {list(tensor.shape)}."
            )
        return [int(value) for value in tensor]

    def cast(self, tensor: np.ndarray[Any, Any], dtype: int) -> np.ndarray[Any, Any]:
        name = dtypes.NAMES[dtype]
        target = _of_ml_dtypes(name) if name in _OF_ML_DTYPES else np.dtype(name)
        if target is None:
            raise InvalidArgumentError(f"{name} arrays need the package ml_dtypes (pip install ml_dtypes).")
        made = tensor.astype(target, copy=False)
        if isinstance(made, np.ndarray) and not made.flags.c_contiguous:  # JAX's arrays come here too
            made = made.copy(order="C")
        return made

    def slot_key(self, tensor: np.ndarray[Any, Any]) -> int:
        return tensor.ctypes.data if tensor.size else id(tensor)


adapter: Final = NumpyAdapter()
