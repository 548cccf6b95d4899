"""Which Horovod a rank runs. Tests of a wheel must not pass because another one was found."""

from __future__ import annotations

import os
from pathlib import Path

import horovod

VARIABLE = "HVD_TEST_INSTALLED"
_CORE = "libhorovod.so"
_LIBRARIES = (_CORE, "libhorovod_tensorflow.so", "_lane.abi3.so")


def _loaded() -> list[str]:
    """The files of Horovod that this process runs: the package, and the libraries that it has mapped."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        mapped = {line.split(maxsplit=5)[-1].strip() for line in maps}
    return [str(horovod.__file__), *sorted(path for path in mapped if os.path.basename(path) in _LIBRARIES)]


def require_installed() -> None:
    """Raises AssertionError if HVD_TEST_INSTALLED names a folder, and Horovod is that of another one or has no core."""
    if folder := os.environ.get(VARIABLE):
        files = _loaded()
        below = all(Path(file).resolve().is_relative_to(Path(folder).resolve()) for file in files)
        has_core = any(os.path.basename(file) == _CORE for file in files)
        assert below and has_core, f"Horovod is not that of {folder}: {files}"
