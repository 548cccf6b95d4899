"""NCCL's interface: a table of the functions that the probes call, opened at run time, results checked.

Used by the NCCL, stream and memory probes. `Config` is the layout of NCCL 2.18 with that version in it: newer
libraries take it and fill in what it lacks, so one layout serves all.
"""

from __future__ import annotations

import ctypes
import functools
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint, c_void_p
from typing import Any, Callable

import libraries

SUCCESS, IN_PROGRESS = 0, 7
FLOAT32 = 7
SUM, AVERAGE = 0, 4
HOST_IMMEDIATE = 1
_UNDEFINED = -(1 << 31)
_MAGIC, _LAYOUT_OF = 0xCAFEBEEF, 21800


class UniqueId(ctypes.Structure):
    """What the members of a communicator share before they meet; passed by value."""

    _fields_ = [("bytes", ctypes.c_ubyte * 128)]


class Config(ctypes.Structure):
    """ncclConfig_t as of 2.18."""

    _fields_ = [
        ("size", c_size_t),
        ("magic", c_uint),
        ("version", c_uint),
        ("blocking", c_int),
        ("cga_cluster_size", c_int),
        ("min_ctas", c_int),
        ("max_ctas", c_int),
        ("net_name", c_char_p),
        ("split_share", c_int),
    ]


def config(blocking: bool, max_ctas: int = _UNDEFINED, share: int = _UNDEFINED) -> Config:
    """Everything else is left to NCCL. `share`: 1 = a part of a communicator uses its resources."""
    undefined = [_UNDEFINED] * 2
    return Config(ctypes.sizeof(Config), _MAGIC, _LAYOUT_OF, int(blocking), *undefined, max_ctas, None, share)


_PTR, _OUT = c_void_p, POINTER(c_void_p)
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "ncclGetVersion": (POINTER(c_int),),
    "ncclGetUniqueId": (POINTER(UniqueId),),
    "ncclCommInitRank": (_OUT, c_int, UniqueId, c_int),
    "ncclCommInitRankConfig": (_OUT, c_int, UniqueId, c_int, POINTER(Config)),
    "ncclCommGetAsyncError": (_PTR, POINTER(c_int)),
    "ncclCommFinalize": (_PTR,),
    "ncclCommDestroy": (_PTR,),
    "ncclCommAbort": (_PTR,),
    "ncclCommSplit": (_PTR, c_int, c_int, _OUT, POINTER(Config)),
    "ncclGroupStart": (),
    "ncclGroupEnd": (),
    "ncclRedOpCreatePreMulSum": (POINTER(c_int), _PTR, c_int, c_int, _PTR),
    "ncclRedOpDestroy": (c_int, _PTR),
    "ncclAllReduce": (_PTR, _PTR, c_size_t, c_int, c_int, _PTR, _PTR),
}


class NcclError(RuntimeError):
    """A function of NCCL failed: its name, the code and NCCL's words for it."""

    def __init__(self, function: str, code: int) -> None:
        self.code = code
        super().__init__(f"{function}: {code} '{error_string(code)}', last error: '{last_error()}'")


@functools.lru_cache(maxsize=1)
def opened() -> tuple[ctypes.CDLL, str]:
    """The library, and where it was found."""
    return libraries.open_library("nccl")


@functools.cache
def bare(name: str) -> Callable[..., int]:
    """The function, unchecked: it returns its code."""
    prototype = ctypes.CFUNCTYPE(c_int, *_FUNCTIONS[name])
    try:
        return prototype((name, opened()[0]))
    except AttributeError as error:
        raise libraries.Missing(f"this NCCL has no {name}") from error


def call(name: str, *arguments: Any) -> None:
    """Calls a function and checks its result."""
    code = bare(name)(*arguments)
    if code:
        raise NcclError(name, code)


def error_string(code: int) -> str:
    """NCCL's words for a code."""
    ask = opened()[0].ncclGetErrorString
    ask.restype = c_char_p
    return (ask(c_int(code)) or b"").decode()


def last_error() -> str:
    """What NCCL last said in this process, with details that the code has not."""
    ask = opened()[0].ncclGetLastError
    ask.restype, ask.argtypes = c_char_p, (c_void_p,)
    return (ask(None) or b"").decode().strip()


def version() -> str:
    """As in 2.28.9."""
    number = c_int()
    call("ncclGetVersion", byref(number))
    return f"{number.value // 10000}.{number.value // 100 % 100}.{number.value % 100}"


def unique_id() -> UniqueId:
    """A new one."""
    made = UniqueId()
    call("ncclGetUniqueId", byref(made))
    return made


def join(size: int, identity: UniqueId, rank: int) -> c_void_p:
    """A communicator; waits for the other members."""
    made = c_void_p()
    call("ncclCommInitRank", byref(made), size, identity, rank)
    return made


def state(communicator: c_void_p) -> int:
    """The code of what goes on in a communicator without us."""
    code = c_int()
    call("ncclCommGetAsyncError", communicator, byref(code))
    return code.value


def scaled_sum(factor: ctypes.c_float, communicator: c_void_p) -> int:
    """A reduction that multiplies each float32 by a factor and adds them up."""
    operation = c_int()
    call("ncclRedOpCreatePreMulSum", byref(operation), ctypes.addressof(factor), FLOAT32, HOST_IMMEDIATE, communicator)
    return operation.value
