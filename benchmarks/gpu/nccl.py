"""NCCL's interface: a table of the functions that the probes call, opened at run time, results checked.

Used by the engine's probe.
"""

from __future__ import annotations

import ctypes
import functools
from ctypes import POINTER, byref, c_int, c_size_t, c_void_p
from typing import Any, Callable

import libraries

FLOAT32 = 7
SUM = 0


class UniqueId(ctypes.Structure):
    """What the members of a communicator share before they meet; passed by value."""

    _fields_ = [("bytes", ctypes.c_ubyte * 128)]


_PTR, _OUT = c_void_p, POINTER(c_void_p)
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "ncclGetUniqueId": (POINTER(UniqueId),),
    "ncclCommInitRank": (_OUT, c_int, UniqueId, c_int),
    "ncclCommDestroy": (_PTR,),
    "ncclAllReduce": (_PTR, _PTR, c_size_t, c_int, c_int, _PTR, _PTR),
}


@functools.cache
def bare(name: str) -> Callable[..., int]:
    """The function, unchecked: it returns its code."""
    prototype = ctypes.CFUNCTYPE(c_int, *_FUNCTIONS[name])
    try:
        return prototype((name, libraries.open_library("nccl")[0]))
    except AttributeError as error:
        raise libraries.Missing(f"this NCCL has no {name}") from error


def call(name: str, *arguments: Any) -> None:
    """Calls a function and checks its result."""
    code = bare(name)(*arguments)
    if code:
        raise RuntimeError(f"{name}: {code}")


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
