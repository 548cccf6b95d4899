"""How much memory of the GPU is in use, by all processes, as NVML says it. Used by `probe_memory`."""

from __future__ import annotations

import ctypes
import functools
from ctypes import byref, c_uint64, c_void_p

import libraries


class _Memory(ctypes.Structure):
    _fields_ = [("total", c_uint64), ("free", c_uint64), ("used", c_uint64)]


@functools.lru_cache(maxsize=1)
def _device() -> tuple[ctypes.CDLL, c_void_p]:
    library, device = libraries.open_library("nvml")[0], c_void_p()
    codes = [library.nvmlInit_v2(), library.nvmlDeviceGetHandleByIndex_v2(0, byref(device))]
    if any(codes):
        raise libraries.Missing(f"NVML: codes {codes}")
    return library, device


def used_bytes() -> int:
    """In use on GPU 0."""
    library, device = _device()
    memory = _Memory()
    code = library.nvmlDeviceGetMemoryInfo(device, byref(memory))
    if code:
        raise libraries.Missing(f"NVML: code {code}")
    return memory.used
