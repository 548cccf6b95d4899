"""The CUDA driver's interface: a table of the functions that the probes call, opened at run time, results checked.

Used by all probes. A function is called by its exported name, suffix included, and raises `CudaError` for anything but
success; `bare` gives it unchecked, for timing. Device addresses are plain integers, handles `c_void_p`.
"""

from __future__ import annotations

import ctypes
import functools
from ctypes import POINTER, byref, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any, Callable

import libraries

NOT_READY = 600
STREAM_NON_BLOCKING = 1
HOST_PORTABLE, HOST_DEVICEMAP = 1, 2
_JIT_ERROR_LOG, _JIT_ERROR_LOG_BYTES = 5, 6
_LOG_BYTES = 8192


_PTR, _OUT, _DEV = c_void_p, POINTER(c_void_p), c_uint64
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cuInit": (c_uint,),
    "cuDeviceGet": (POINTER(c_int), c_int),
    "cuDevicePrimaryCtxRetain": (_OUT, c_int),
    "cuCtxSetCurrent": (_PTR,),
    "cuMemAlloc_v2": (POINTER(_DEV), c_size_t),
    "cuMemFree_v2": (_DEV,),
    "cuMemHostAlloc": (_OUT, c_size_t, c_uint),
    "cuMemHostGetDevicePointer_v2": (POINTER(_DEV), _PTR, c_uint),
    "cuMemHostRegister_v2": (_PTR, c_size_t, c_uint),
    "cuMemcpyHtoD_v2": (_DEV, _PTR, c_size_t),
    "cuMemcpyDtoH_v2": (_PTR, _DEV, c_size_t),
    "cuMemcpyHtoDAsync_v2": (_DEV, _PTR, c_size_t, _PTR),
    "cuMemcpyDtoHAsync_v2": (_PTR, _DEV, c_size_t, _PTR),
    "cuMemcpyDtoDAsync_v2": (_DEV, _DEV, c_size_t, _PTR),
    "cuStreamCreate": (_OUT, c_uint),
    "cuStreamSynchronize": (_PTR,),
    "cuLaunchHostFunc": (_PTR, _PTR, _PTR),
    "cuEventCreate": (_OUT, c_uint),
    "cuEventRecord": (_PTR, _PTR),
    "cuEventQuery": (_PTR,),
    "cuEventElapsedTime": (POINTER(c_float), _PTR, _PTR),
    "cuModuleLoadDataEx": (_OUT, _PTR, c_uint, POINTER(c_int), _OUT),
    "cuModuleGetFunction": (_OUT, _PTR, ctypes.c_char_p),
    "cuLaunchKernel": (_PTR, *[c_uint] * 7, _PTR, _OUT, _OUT),
}


class CudaError(RuntimeError):
    """A function of the driver failed: its name, the code and the driver's words for it."""

    def __init__(self, function: str, code: int) -> None:
        self.code = code
        super().__init__(f"{function}: {code} {_words(code)}")


@functools.lru_cache(maxsize=1)
def _opened() -> tuple[ctypes.CDLL, str]:
    return libraries.open_library("driver")


def _words(code: int) -> str:
    text = ctypes.c_char_p()
    ask = _opened()[0].cuGetErrorName
    ask.argtypes = (c_int, POINTER(ctypes.c_char_p))
    ask(code, byref(text))
    return (text.value or b"unknown").decode()


@functools.cache
def bare(name: str) -> Callable[..., int]:
    """The function, unchecked: it returns its code.

    Raises:
        libraries.Missing: this driver is older than the function.
    """
    prototype = ctypes.CFUNCTYPE(c_int, *_FUNCTIONS[name])
    try:
        return prototype((name, _opened()[0]))
    except AttributeError as error:
        raise libraries.Missing(f"the driver has no {name}") from error


def call(name: str, *arguments: Any) -> None:
    """Calls a function and checks its result."""
    code = bare(name)(*arguments)
    if code:
        raise CudaError(name, code)


def attach(index: int = 0) -> c_void_p:
    """Makes the primary context of a device, which frameworks share, current in this thread."""
    device, context = c_int(), c_void_p()
    call("cuInit", 0)
    call("cuDeviceGet", byref(device), index)
    call("cuDevicePrimaryCtxRetain", byref(context), device)
    call("cuCtxSetCurrent", context)
    return context


def allocate(size_bytes: int) -> int:
    """Device memory."""
    address = c_uint64()
    call("cuMemAlloc_v2", byref(address), size_bytes)
    return address.value


def allocate_host(size_bytes: int) -> tuple[int, int]:
    """Pinned host memory that the device can reach: its address here and there."""
    here, there = c_void_p(), c_uint64()
    call("cuMemHostAlloc", byref(here), size_bytes, HOST_PORTABLE | HOST_DEVICEMAP)
    call("cuMemHostGetDevicePointer_v2", byref(there), here, 0)
    return here.value or 0, there.value


def stream() -> c_void_p:
    """A stream that does not wait for the default one."""
    made = c_void_p()
    call("cuStreamCreate", byref(made), STREAM_NON_BLOCKING)
    return made


def event() -> c_void_p:
    """An event that knows its time."""
    made = c_void_p()
    call("cuEventCreate", byref(made), 0)
    return made


def elapsed_s(begin: c_void_p, end: c_void_p) -> float:
    """Seconds of the device's clock between two events that have happened."""
    milliseconds = c_float()
    call("cuEventElapsedTime", byref(milliseconds), begin, end)
    return milliseconds.value / 1e3


def load(ptx: str) -> c_void_p:
    """Compiles PTX text for this device; a refusal has the compiler's words."""
    module, log = c_void_p(), ctypes.create_string_buffer(_LOG_BYTES)
    names = (c_int * 2)(_JIT_ERROR_LOG, _JIT_ERROR_LOG_BYTES)
    values = (c_void_p * 2)(ctypes.addressof(log), _LOG_BYTES)
    code = bare("cuModuleLoadDataEx")(byref(module), ptx.encode() + b"\0", 2, names, values)
    if code:
        raise CudaError(f"cuModuleLoadDataEx ({log.value.decode(errors='replace')})", code)
    return module


def function(module: c_void_p, name: str) -> c_void_p:
    """A kernel of a module."""
    found = c_void_p()
    call("cuModuleGetFunction", byref(found), module, name.encode())
    return found


class Launch:
    """A kernel with its arguments, ready to be launched again and again.

    Args:
        kernel: from `function`.
        grid: blocks, and threads of each.
        arguments: ctypes values; changing them changes the next launch.
        on: the stream.
    """

    def __init__(self, kernel: c_void_p, grid: tuple[int, int], arguments: list[Any], on: c_void_p) -> None:
        self.arguments = arguments
        self._places = (c_void_p * len(arguments))(*[ctypes.addressof(a) for a in arguments])
        self._call = bare("cuLaunchKernel")
        self._words = (kernel, grid[0], 1, 1, grid[1], 1, 1, 0, on, self._places, None)

    def __call__(self) -> None:
        code = self._call(*self._words)
        if code:
            raise CudaError("cuLaunchKernel", code)
