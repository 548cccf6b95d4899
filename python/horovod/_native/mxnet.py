"""Submissions as operations of MXNet's engine (hvd_mxnet_*), which is given to this as a loaded library."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Final

from horovod._native import abi

__all__ = ["MxnetEngine"]

# Of GNU's C++ library, with which MXNet is compiled: the constructor of std::runtime_error from a text, its destructor.
_MAKE_ERROR: Final = "_ZNSt13runtime_errorC1EPKc"
_DROP_ERROR: Final = "_ZNSt13runtime_errorD1Ev"
# Of MXNet with oneDNN: mxnet::NDArray::Reorder2Default() const, mxnet::NDArray::Chunk::Reorder2Default().
_USUAL: Final = ("_ZNK5mxnet7NDArray15Reorder2DefaultEv", "_ZN5mxnet7NDArray5Chunk15Reorder2DefaultEv")


class _Context(ctypes.Structure):
    _fields_ = (("device_type", ctypes.c_int), ("device_id", ctypes.c_int32))


_CPU: Final = _Context(1, 0)


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


class MxnetEngine:
    """Any thread may call the method.

    Args:
        library: from `horovod._native.library.load`.
        mxnet: MXNet's own.

    Raises:
        AttributeError: MXNet's library lacks a function.
    """

    def __init__(self, library: ctypes.CDLL, mxnet: ctypes.CDLL) -> None:
        self._prepare = library.hvd_mxnet_prepare
        self._push = mxnet.MXEnginePushAsyncND
        self._run, self._drop = _address(library.hvd_mxnet_run), _address(library.hvd_mxnet_drop)
        copy, free, data = mxnet.MXShallowCopyNDArray, mxnet.MXNDArrayFree, mxnet.MXNDArrayGetData
        usual = [getattr(mxnet, name, None) for name in _USUAL]
        errors = [getattr(mxnet, name) for name in (_MAKE_ERROR, _DROP_ERROR)]
        addresses = map(_address, (copy, free, data, *usual, *errors))
        self._functions = abi.HvdMxnetFunctions(ctypes.sizeof(abi.HvdMxnetFunctions), *addresses)

    def push(self, members: Sequence[abi.HvdOp], priority: int, timeout_s: float) -> tuple[int, int]:
        """Gives the engine one operation, or a group as one.

        Args:
            members: input and output are handles of MXNet's arrays. What is written occurs once.
            priority: of the operations that are ready the engine prefers the higher one.
            timeout_s: how long to wait for an earlier operation of one of these names.

        Returns:
            (status, what MXNet's function returned).
        """
        n, request = len(members), ctypes.c_void_p()
        ops = (abi.HvdOp * n)(*members)
        functions = ctypes.byref(self._functions)
        status = int(self._prepare(ctypes.addressof(ops), n, functions, timeout_s, ctypes.byref(request)))
        if status != abi.OK:
            return status, 0
        written = {member.output for member in members if member.output}
        read = {member.input for member in members if member.input} - written
        arrays = [(ctypes.c_void_p * len(handles))(*handles) for handles in (read, written)]
        pushed = self._push(
            *(ctypes.c_void_p(self._run), request, ctypes.c_void_p(self._drop), ctypes.byref(_CPU)),
            *(arrays[0], len(read), arrays[1], len(written), None, priority, members[0].name, False),
        )
        return status, int(pushed)
