"""Finds and loads libhorovod.so and checks that it speaks this package's version of the C interface.

Used by `horovod._core.life.context` (through `engine`). The library lies beside this file in the wheel, and in another
folder of this package where a checkout is installed for editing (`pip install -e .`). For development HOROVOD_LIBRARY
names another one. A library that cannot be used is an ImportError that lists every path tried, cause and remedy.
"""

from __future__ import annotations

import ctypes
import os
import threading
from typing import Optional

from horovod import _native
from horovod._native import abi

FILE_NAME = "libhorovod.so"
PATH_VARIABLE = "HOROVOD_LIBRARY"

_lock = threading.Lock()
_loaded: Optional[ctypes.CDLL] = None  # guarded by _lock


def candidate_paths() -> list[str]:
    """Where the library is looked for, in order; HOROVOD_LIBRARY, when set, is the only place."""
    named = os.environ.get(PATH_VARIABLE)
    if named:
        return [os.path.abspath(named)]
    return [os.path.join(os.path.abspath(folder), FILE_NAME) for folder in _native.__path__]


def used_path() -> str:
    """The first of them that is there; the first of all if none is."""
    paths = candidate_paths()
    return next(filter(os.path.exists, paths), paths[0])


def declare(library: ctypes.CDLL) -> None:
    """Gives every function of the library its prototype.

    Raises:
        AttributeError: the library lacks a function.
    """
    for name, (result, arguments) in abi.FUNCTIONS.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments


def _open(path: str) -> ctypes.CDLL:
    """Loads one file and checks it.

    Raises:
        OSError: it cannot be loaded, is of another version, or lacks a function; the message says which.
    """
    if not os.path.exists(path):
        raise OSError("no such file")
    library = ctypes.CDLL(path)  # RTLD_LOCAL: the core's symbols concern nobody else
    try:
        version = int(library.hvd_abi_version())
    except AttributeError as error:
        raise OSError("it is not Horovod's core: it has no hvd_abi_version") from error
    if version != abi.ABI_VERSION:
        raise OSError(f"it speaks version {version} of the C interface, this Python package version {abi.ABI_VERSION}")
    try:
        declare(library)
    except AttributeError as error:
        raise OSError(f"it is incomplete: {error}") from error
    return library


def beside(file_name: str) -> str:
    """The path of another library that lies where the core does."""
    return os.path.join(os.path.dirname(used_path()), file_name)


def load() -> ctypes.CDLL:
    """The loaded library; loaded once per process.

    Raises:
        ImportError: it is missing or unusable.
    """
    global _loaded
    with _lock:
        if _loaded is None:
            reasons: list[str] = []
            for path in candidate_paths():
                try:
                    _loaded = _open(path)
                    return _loaded
                except OSError as error:
                    reasons.append(f"{path}: {error}")
            remedy = (
                f"correct or unset {PATH_VARIABLE}"
                if os.environ.get(PATH_VARIABLE)
                else f"reinstall horovod, or set {PATH_VARIABLE} to the library's path"
            )
            raise ImportError(f"Horovod's core library cannot be used. Tried: {'; '.join(reasons)}. Remedy: {remedy}.")
        return _loaded
