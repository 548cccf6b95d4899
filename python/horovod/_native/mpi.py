"""The calls of the C interface about an MPI library that moves tensors. Used through `engine.Engine.mpi`."""

from __future__ import annotations

import ctypes
import os
from typing import Callable

from horovod._native import abi


class Mpi:
    """hvd_use_mpi as methods. Any thread may call them.

    Args:
        library: from `horovod._native.library.load`.
        check: raises for a status that is a failure.
    """

    def __init__(self, library: ctypes.CDLL, check: Callable[[int], None]) -> None:
        self._library = library
        self._check = check

    def use(self, style: int, library: str, communicator: int) -> None:
        """From now on MPI moves the tensors; with communicator 0 it is only seen whether it could."""
        self._tell(style, library, communicator, "")

    def refuse(self, why_not: str) -> None:
        """The reason why MPI is not used, for `describe`."""
        self._tell(0, "", 0, why_not)

    def _tell(self, style: int, library: str, communicator: int, why_not: str) -> None:
        size = ctypes.sizeof(abi.HvdMpi)
        filled = abi.HvdMpi(size, style, os.fsencode(library), communicator, why_not.encode())
        self._check(self._library.hvd_use_mpi(ctypes.byref(filled)))
