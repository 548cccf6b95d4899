"""The three ways in which MPI libraries name their objects, and the few functions that we call, with their types.

An MPI library says nothing of itself in a form that a program without its header could read; but every one has one of
three binary interfaces: that of Open MPI, in which a handle is the address of an object that the library exports; that
of MPICH, which Intel MPI, MVAPICH and Cray MPICH share, in which it is a number of 32 bits; and the standard one of
MPI 5.0 (chapter 20), in which it is a small number in a pointer. Used by library.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any, Final, NamedTuple

from horovod._net.failures import MeetingError

# An MPI_Status of any library fits: 20 to 32 bytes.
Status: Final = ctypes.c_char * 64
_STANDARD_ABI: Final = "libmpi_abi."


class Threads(NamedTuple):
    """The levels of threads; each includes those before."""

    single: int
    serialized: int
    multiple: int


_USUAL: Final = Threads(0, 2, 3)


class Handles(NamedTuple):
    """What the objects are called that every library has.

    Attributes:
        style: the name of the binary interface.
        kind: ctypes' type of a handle.
        comm_world, byte, errors_return: handles.
        threads: not handles, but not the same everywhere either.
    """

    style: str
    kind: Any
    comm_world: int
    byte: int
    errors_return: int
    threads: Threads = _USUAL


OPEN_MPI_STYLE: Final = "Open MPI"
MPICH_STYLE: Final = "MPICH ABI"
STANDARD_STYLE: Final = "MPI 5 standard ABI"
_MPICH: Final = Handles(MPICH_STYLE, ctypes.c_int, 0x44000000, 0x4C00010D, 0x54000001)
_STANDARD: Final = Handles(STANDARD_STYLE, ctypes.c_void_p, 0x101, 0x247, 0x143, Threads(0, 2048, 4096))

# By argument: H a handle, h where one is put, i a number, o where one is put, b bytes.
_FUNCTIONS: Final = {
    "MPI_Get_library_version": "bo",
    "MPI_Initialized": "o",
    "MPI_Finalized": "o",
    "MPI_Init_thread": "bbio",
    "MPI_Query_thread": "o",
    "MPI_Is_thread_main": "o",
    "MPI_Finalize": "",
    "MPI_Error_string": "ibo",
    "MPI_Comm_rank": "Ho",
    "MPI_Comm_size": "Ho",
    "MPI_Comm_group": "Hh",
    "MPI_Comm_dup": "Hh",
    "MPI_Comm_create_group": "HHih",
    "MPI_Comm_set_errhandler": "HH",
    "MPI_Comm_free": "h",
    "MPI_Group_incl": "Hibh",
    "MPI_Group_free": "h",
    "MPI_Iallgather": "biHbiHHh",
    "MPI_Ibcast": "biHiHh",
    "MPI_Test": "hob",
}


def handles_of(library: ctypes.CDLL, path: str) -> Handles:
    """The handles of an opened library.

    Args:
        library: opened.
        path: of its file. MPICH's own library has the functions of the standard too, so only the name tells.

    Raises:
        MeetingError: it has none of the three interfaces.
    """
    if Path(path).name.startswith(_STANDARD_ABI):
        return _STANDARD
    if not hasattr(library, "MPI_Init_thread"):
        raise MeetingError(f"{path} is not an MPI library: it has no MPI_Init_thread.")
    if hasattr(library, "ompi_mpi_comm_world"):
        names = ("ompi_mpi_comm_world", "ompi_mpi_byte", "ompi_mpi_errors_return")
        world, byte, errors = (ctypes.addressof(ctypes.c_char.in_dll(library, name)) for name in names)
        return Handles(OPEN_MPI_STYLE, ctypes.c_void_p, world, byte, errors)
    return _MPICH


def bind(library: ctypes.CDLL, handles: Handles) -> None:
    """Gives the functions their types.

    Raises:
        MeetingError: one is missing.
    """
    kinds = {
        "H": handles.kind,
        "h": ctypes.POINTER(handles.kind),
        "i": ctypes.c_int,
        "o": ctypes.POINTER(ctypes.c_int),
        "b": ctypes.c_void_p,
    }
    for name, arguments in _FUNCTIONS.items():
        function = getattr(library, name, None)
        if function is None:
            raise MeetingError(f"The MPI library has no {name}, which MPI has since version 3.0.")
        function.argtypes = [kinds[each] for each in arguments]
        function.restype = ctypes.c_int
