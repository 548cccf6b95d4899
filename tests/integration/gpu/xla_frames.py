"""What XLA does with the core's handlers, without XLA: call frames of its FFI, made by ctypes as JAX 0.5 to 0.11 make
them, over arrays on the (fake) GPU or of NumPy. A token goes first, as `horovod.jax.operators` has it.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_int32, c_int64, c_size_t, c_void_p
from typing import Any, Final

import gpu_arrays
import numpy as np

from horovod._core.life import engine_start
from horovod._core.operations.described_call import DescribedOperation, describe

_NUMBER_OF: Final = {"int32": 4, "int64": 5, "float16": 10, "float32": 11, "float64": 12}  # in XLA
_BUFFER, _TEXT, _EXECUTE = 1, 4, 3
_CONTEXT: Final = 12345


class _Version(ctypes.Structure):
    _fields_ = [("bytes", c_size_t), ("extensions", c_void_p), ("major", c_int32), ("minor", c_int32)]


class _ErrorArguments(ctypes.Structure):
    _fields_ = [("bytes", c_size_t), ("extensions", c_void_p), ("message", c_char_p), ("code", c_int32)]


class _StreamArguments(ctypes.Structure):
    _fields_ = [("bytes", c_size_t), ("extensions", c_void_p), ("context", c_void_p), ("stream", c_void_p)]


_CreateError = CFUNCTYPE(c_void_p, POINTER(_ErrorArguments))
_GetStream = CFUNCTYPE(c_void_p, POINTER(_StreamArguments))


class _Api(ctypes.Structure):
    _fields_ = [
        ("bytes", c_size_t),
        ("extensions", c_void_p),
        ("version", _Version),
        ("internal", c_void_p),
        ("create_error", _CreateError),
        ("error_message", c_void_p),
        ("destroy_error", c_void_p),
        ("register_handler", c_void_p),
        ("get_stream", _GetStream),
    ]


class _Buffer(ctypes.Structure):
    _fields_ = [
        ("bytes", c_size_t),
        ("extensions", c_void_p),
        ("dtype", c_int32),
        ("data", c_void_p),
        ("rank", c_int64),
        ("extents", POINTER(c_int64)),
    ]


class _Buffers(ctypes.Structure):
    _fields_ = [
        ("bytes", c_size_t),
        ("extensions", c_void_p),
        ("size", c_int64),
        ("types", POINTER(c_int32)),
        ("items", POINTER(POINTER(_Buffer))),
    ]


class _Text(ctypes.Structure):
    _fields_ = [("data", c_char_p), ("bytes", c_size_t)]


class _Attributes(ctypes.Structure):
    _fields_ = [
        ("bytes", c_size_t),
        ("extensions", c_void_p),
        ("size", c_int64),
        ("types", POINTER(c_int32)),
        ("names", POINTER(POINTER(_Text))),
        ("values", POINTER(POINTER(_Text))),
    ]


class _CallFrame(ctypes.Structure):
    _fields_ = [
        ("bytes", c_size_t),
        ("extensions", c_void_p),
        ("api", POINTER(_Api)),
        ("context", c_void_p),
        ("stage", c_int32),
        ("operands", _Buffers),
        ("results", _Buffers),
        ("attributes", _Attributes),
    ]


def call(operations: Sequence[DescribedOperation], operands: Sequence[Any], results: Sequence[Any]) -> str:
    """Runs described operations on arrays that lie all on the GPU, or all in the host's memory. Collective.

    Returns:
        The text of the error; empty: there is none.
    """
    on_gpu = isinstance(operands[0], gpu_arrays.GpuArray)
    token = _token_on_gpu() if on_gpu else np.zeros((), np.float32)
    told: list[str] = []

    def create_error(arguments: Any) -> int:
        told.append(arguments.contents.message.decode())
        return 1

    def get_stream(arguments: Any) -> None:
        assert arguments.contents.context == _CONTEXT
        arguments.contents.stream = gpu_arrays.driver().stream

    api = _Api(
        bytes=ctypes.sizeof(_Api),
        version=_Version(bytes=ctypes.sizeof(_Version), minor=1),
        create_error=_CreateError(create_error),
        get_stream=_GetStream(get_stream),
    )
    frame = _CallFrame(bytes=ctypes.sizeof(_CallFrame), api=ctypes.pointer(api), context=_CONTEXT, stage=_EXECUTE)
    frame.operands, frame.results = _buffers([token, *operands]), _buffers([token, *results])
    frame.attributes = _described(describe(operations).encode())
    handler = engine_start.jax_handlers()["CUDA" if on_gpu else "cpu"]
    failed = handler(ctypes.byref(frame))
    assert bool(failed) == bool(told)
    return told[0] if told else ""


@functools.cache
def _token_on_gpu() -> Any:
    return gpu_arrays.GpuArray(np.zeros((), np.float32))  # freeing memory waits for the stream


def _buffers(arrays: Sequence[Any]) -> _Buffers:
    made = [
        _Buffer(
            bytes=ctypes.sizeof(_Buffer),
            dtype=_NUMBER_OF[str(array.dtype)],
            data=array.address if isinstance(array, gpu_arrays.GpuArray) else array.ctypes.data,
            rank=len(array.shape),
            extents=(c_int64 * len(array.shape))(*array.shape),
        )
        for array in arrays
    ]
    n = len(made)
    items = (POINTER(_Buffer) * n)(*map(ctypes.pointer, made))
    return _Buffers(bytes=ctypes.sizeof(_Buffers), size=n, types=(c_int32 * n)(*[_BUFFER] * n), items=items)


def _described(text: bytes) -> _Attributes:
    def one(words: bytes) -> Any:
        return (POINTER(_Text) * 1)(ctypes.pointer(_Text(words, len(words))))

    types, size = (c_int32 * 1)(_TEXT), ctypes.sizeof(_Attributes)
    return _Attributes(bytes=size, size=1, types=types, names=one(b"description"), values=one(text))
