"""Where the libraries of a GPU machine lie: NCCL and the driver. Found at run time, as the GPU backend finds them; no
header and no package of CUDA is needed.

Used by the tables `driver` and `nccl`. It only looks and opens.
"""

from __future__ import annotations

import ctypes
import os
import site
import sys
from pathlib import Path

# Names by which each library may go, newest first.
NAMES = {
    "driver": ("libcuda.so.1",),
    "nccl": ("libnccl.so.2",),
}
# Set by the user, each names the file of one library.
VARIABLES = {"nccl": "HOROVOD_NCCL_PATH"}


class Missing(Exception):
    """What a probe needs is not on this machine: it is skipped, by this name."""


def candidates(what: str) -> list[str]:
    """Every file that could be this library: the user's choice, the wheels that frameworks bring, the system's."""
    found = []
    chosen = os.environ.get(VARIABLES.get(what, ""), "")
    if chosen:
        found.append(chosen)
    for folder in _package_folders():
        for name in NAMES[what]:
            # nvidia/nccl/lib and, since CUDA 13, nvidia/cu13/lib for most others.
            found += [str(path) for path in sorted(folder.glob(f"nvidia/*/lib/{name}"))]
    return [*found, *NAMES[what]]


def open_library(what: str) -> tuple[ctypes.CDLL, str]:
    """Opens the first that can be opened.

    Returns:
        the library, and the path or name by which it was found.

    Raises:
        Missing: none can; the message has the reasons.
    """
    reasons = []
    for path in candidates(what):
        try:
            return ctypes.CDLL(path), path
        except OSError as error:
            reasons.append(str(error))
    raise Missing(f"{NAMES[what][0]}: {'; '.join(reasons)}")


def _package_folders() -> list[Path]:
    named = [*site.getsitepackages(), site.getusersitepackages(), *sys.path]
    return [Path(name) for name in dict.fromkeys(named) if name and Path(name, "nvidia").is_dir()]
