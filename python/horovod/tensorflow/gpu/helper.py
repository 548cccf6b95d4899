"""The helper that tells an operator's stream, stream.cc: compiled against the installed TensorFlow, kept for this user,
and found again. `python -m horovod build-tensorflow-gpu` compiles it, jobs only look for it: all ranks of a job need it
or none, and a compiler in each of them would be late."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Optional

import tensorflow as tf

__all__ = ["COMMAND", "build", "found"]

COMMAND: Final = "python -m horovod build-tensorflow-gpu"

_SOURCE: Final = Path(__file__).with_name("stream.cc")
_COMPILERS: Final = ("c++", "g++", "clang++")
_TIMEOUT_S: Final = 900.0
_FUNCTION: Final = "hvd_tensorflow_stream"


class BuildError(RuntimeError):
    """The helper cannot be compiled; the message says why."""


def found() -> Optional[Path]:
    """The helper for this TensorFlow; None if it has not been built.

    Raises:
        PermissionError: another user may have written it.
    """
    path = _path()
    if not path.exists():
        return None
    _require_private(path.parent)
    return path


def build(more_flags: Sequence[str] = ()) -> Path:
    """Compiles the helper and keeps it. Takes half a minute; a helper that is in use stays as it is.

    Args:
        more_flags: for the compiler.

    Raises:
        BuildError: there is no compiler, or it fails; the message holds its last words.
        PermissionError: another user may write where helpers are kept.
    """
    compiler = next(filter(None, map(shutil.which, _COMPILERS)), None)
    if compiler is None:
        raise BuildError(f"there is no C++ compiler ({', '.join(_COMPILERS)}) in PATH. Install one, such as g++.")
    path = _path()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _require_private(path.parent)
    with tempfile.TemporaryDirectory(dir=path.parent) as room:
        made = Path(room) / path.name
        flags = ["-shared", "-fPIC", "-O1", "-w", *tf.sysconfig.get_compile_flags(), *more_flags]
        command = [compiler, *flags, str(_SOURCE), "-o", str(made), *tf.sysconfig.get_link_flags()]
        try:
            ended = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise BuildError(f"{compiler} has not ended within {_TIMEOUT_S:.0f} s.") from None
        if ended.returncode != 0:
            raise BuildError(f"{compiler} fails on the headers of TensorFlow {tf.__version__}: {ended.stderr[-2000:]}")
        try:
            getattr(ctypes.CDLL(str(made)), _FUNCTION)
        except (OSError, AttributeError) as error:
            raise BuildError(f"what {compiler} has made cannot be loaded: {error}") from None
        made.replace(path)
    return path


def function(path: Path) -> ctypes.c_void_p:
    """The address of the function in a helper."""
    return ctypes.cast(getattr(ctypes.CDLL(str(path)), _FUNCTION), ctypes.c_void_p)


def _path() -> Path:
    """Where the helper for this TensorFlow is kept: another build of the same version has other flags, or another
    commit. A home may be shared by machines of two kinds."""
    facts = (platform.machine(), tf.version.GIT_VERSION, tf.version.COMPILER_VERSION, *tf.sysconfig.get_compile_flags())
    digest = hashlib.sha256("\n".join((*facts, _SOURCE.read_text(encoding="utf-8"))).encode()).hexdigest()
    return Path.home() / ".cache" / "horovod" / f"tensorflow-{tf.__version__}-{digest[:16]}.so"


def _require_private(folder: Path) -> None:
    state = folder.stat()
    if state.st_uid != os.geteuid() or state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(
            f"{folder} belongs to user {state.st_uid} and has mode {stat.S_IMODE(state.st_mode):04o}; what is loaded "
            f"from there must be this user's alone (uid {os.geteuid()}). Remove it, or make it private (chmod 700)."
        )
