"""DLPack's exchange table for a class of Python: the lane reads its objects as it reads a framework's tensors.

The layout is that of src/lane/dlpack.h.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Callable, NamedTuple

import numpy as np

CPU, CUDA, ROCM = 1, 2, 10
_KINDS = {"i": 0, "u": 1, "f": 2, "b": 6}
_UNKNOWN = 255


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_READ = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(_Tensor))


class _Table(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("unused", ctypes.c_void_p * 4),
        ("tensor_from_object", _READ),
        ("current_work_stream", ctypes.c_void_p),
    )


class Seen(NamedTuple):
    """What the table says of an object.

    Attributes:
        address: of its first element.
        device_type, device_id: DLPack's.
        dtype: NumPy's.
        shape: extents; contiguous.
    """

    address: int
    device_type: int
    device_id: int
    dtype: Any
    shape: Sequence[int]


def give(kind: type, see: Callable[[Any], Seen]) -> None:
    """Gives a class its table. Its objects need an attribute `extents`, where the table keeps their shape."""

    def read(thing: Any, out: Any) -> int:
        seen, tensor = see(thing), out[0]
        thing.extents = (ctypes.c_int64 * max(len(seen.shape), 1))(*seen.shape)
        dtype = np.dtype(seen.dtype)
        tensor.data, tensor.device_type, tensor.device_id = seen.address, seen.device_type, seen.device_id
        tensor.ndim, tensor.shape, tensor.strides = len(seen.shape), thing.extents, None
        tensor.code, tensor.bits, tensor.lanes = _KINDS.get(dtype.kind, _UNKNOWN), 8 * dtype.itemsize, 1
        tensor.byte_offset = 0
        return 0

    table = _Table(1, 0, (ctypes.c_void_p * 4)(), _READ(read), None)
    name = ctypes.c_char_p(b"dlpack_exchange_api")
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    kind.__dlpack_c_exchange_api__ = new(ctypes.addressof(table), name, None)  # type: ignore[attr-defined]
    kind._keeps_table = (table, name)  # type: ignore[attr-defined]
