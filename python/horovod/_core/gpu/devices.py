"""Which GPUs the kernel shows to this process, seen by the files of their drivers; no library is opened for that."""

from __future__ import annotations

import glob
import os
from typing import Final

# NVIDIA's driver, Windows' below WSL, the two of NVIDIA's small machines.
_NVIDIA: Final = ("nvidia[0-9]*", "dxg", "nvhost-gpu", "nvgpu/*")
_AMD: Final = ("kfd",)


def nvidia(root: str = "/") -> list[str]:
    """Files in /dev of NVIDIA's GPUs, by their names there."""
    return _nodes(root, _NVIDIA)


def amd(root: str = "/") -> list[str]:
    """Files in /dev of AMD's GPUs: one for all of them."""
    return _nodes(root, _AMD)


def _nodes(root: str, patterns: tuple[str, ...]) -> list[str]:
    place = os.path.join(root, "dev")
    found = (path for pattern in patterns for path in glob.glob(os.path.join(glob.escape(place), pattern)))
    return sorted(os.path.relpath(path, place) for path in found)
