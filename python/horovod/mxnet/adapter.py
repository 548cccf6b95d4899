"""The adapter of MXNet: answers the core's questions about its arrays (`horovod._core.tensors.adapter.Adapter`).

`adapter` waits for what makes an array before it tells its address. `handles` tells MXNet's handle of the array
instead, for operations that MXNet's engine runs when the array is ready (`engine`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Final

import mxnet as mx
import numpy as np
from mxnet.base import _LIB, check_call
from mxnet.ndarray.ndarray import _new_alloc_handle

from horovod._core.errors import InvalidArgumentError
from horovod._core.tensors import dtypes
from horovod._core.tensors.adapter import ResultBlock

__all__ = ["MxnetAdapter", "adapter", "handles"]

_BFLOAT16: Final = np.dtype([("bfloat16", np.uint16)])  # as MXNet has it
_NUMBER_OF: Final = {
    np.dtype(np.float32): dtypes.FLOAT32,
    np.dtype(np.float64): dtypes.FLOAT64,
    np.dtype(np.float16): dtypes.FLOAT16,
    np.dtype(np.uint8): dtypes.UINT8,
    np.dtype(np.int32): dtypes.INT32,
    np.dtype(np.int8): dtypes.INT8,
    np.dtype(np.int64): dtypes.INT64,
    np.dtype(np.bool_): dtypes.BOOL,
    _BFLOAT16: dtypes.BFLOAT16,
}
_DTYPE_OF: Final = {number: dtype for dtype, number in _NUMBER_OF.items()}


def _in_host_memory(context: Any) -> bool:
    return str(context.device_type).startswith("cpu")  # also pinned and shared memory


class MxnetAdapter:
    """See `horovod._core.tensors.adapter.Adapter`, which says what each method means."""

    framework = "mxnet"
    maker = "mxnet.nd.array"
    lane_terms = None
    gpu = None

    def owns(self, value: Any) -> bool:
        return isinstance(value, mx.nd.NDArray)

    def dtype(self, tensor: Any) -> int:
        return _NUMBER_OF.get(np.dtype(tensor.dtype), -1)

    def dtype_name(self, tensor: Any) -> str:
        dtype = np.dtype(tensor.dtype)
        return "bfloat16" if dtype == _BFLOAT16 else dtype.name

    def shape(self, tensor: Any) -> tuple[int, ...]:
        return tuple(tensor.shape)

    def device(self, tensor: Any) -> str:
        return "cpu" if _in_host_memory(tensor.context) else str(tensor.context)

    def unfit(self, tensor: Any) -> str:
        if tensor.stype == "default":
            return ""
        return f"needs a dense array. Received one of stype {tensor.stype}; tensor.tostype('default') makes one."

    def is_contiguous(self, tensor: Any) -> bool:
        return True  # views are of whole rows

    def is_writable(self, tensor: Any) -> bool:
        return bool(tensor.writable)

    def address(self, tensor: Any) -> int:
        if not tensor.size:
            return 0
        tensor.wait_to_read()
        return self._data(tensor)

    def empty_like(self, tensor: Any) -> Any:
        return self.empty(tensor.shape, tensor)

    def empty(self, shape: Sequence[int], like: Any) -> Any:
        """A new array of that shape, and the class, dtype and device of `like`; contents undefined."""
        return type(like)(handle=_new_alloc_handle(tuple(shape), like.context, False, like.dtype))

    def contiguous(self, tensor: Any) -> Any:
        return tensor

    def to_host(self, tensor: Any) -> Any:
        return tensor.copyto(mx.cpu())

    def from_host(self, host: Any, like: Any) -> Any:
        return host if _in_host_memory(like.context) else host.copyto(like.context)

    def copy_into(self, target: Any, source: Any) -> None:
        if target is not source:
            source.astype(target.dtype, copy=False).copyto(target)

    def wrap(self, block: ResultBlock, like: Any) -> Any:
        made = type(like)(handle=_new_alloc_handle(block.shape, mx.cpu(), False, like.dtype))
        if block.nbytes:
            ctypes.memmove(self._data(made), block.address, block.nbytes)
        return made

    def from_values(self, values: Sequence[int], like: Any) -> Any:
        return mx.nd.array(values, ctx=like.context, dtype=np.int32)

    def values_of(self, tensor: Any) -> list[int]:
        if len(tensor.shape) != 1 or np.dtype(tensor.dtype).kind not in "iu":
            raise InvalidArgumentError(
                f"Splits must be a one-dimensional array of integers. Received: {self.dtype_name(tensor)} "
                f"{list(tensor.shape)}."
            )
        return [int(value) for value in tensor.asnumpy()]

    def cast(self, tensor: Any, dtype: int) -> Any:
        return tensor.astype(_DTYPE_OF[dtype], copy=False)

    def slot_key(self, tensor: Any) -> int:
        return int(tensor.handle.value)

    def _data(self, tensor: Any) -> int:
        address = ctypes.c_void_p()
        check_call(_LIB.MXNDArrayGetData(tensor.handle, ctypes.byref(address)))
        return address.value or 0


class _Handles(MxnetAdapter):
    """Answers with a handle where an address is asked for, and so waits for nothing."""

    def address(self, tensor: Any) -> int:
        return int(tensor.handle.value) if tensor.size else 0


adapter: Final = MxnetAdapter()
handles: Final = _Handles()
