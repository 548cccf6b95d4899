"""Which NCCL this process uses (for AMD's GPUs which RCCL and which HIP), or why there is none: the one that the user
names, that is loaded already, that lies beside Python, that the system knows.

Wheels come before the system: PyTorch opens the NCCL of its wheel, and of two files with one name the loader gives
everybody in a process the one that was opened first. Looks at files and at /proc, and opens no library. Used by
`horovod._core.life.planes.gpu_plane` and by the launcher.
"""

from __future__ import annotations

import glob
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Optional

PATH: Final = "HOROVOD_NCCL_PATH"
HOME: Final = "HOROVOD_NCCL_HOME"
FOLDER: Final = "HOROVOD_NCCL_LIB"

# The driver's library fits the driver alone, so there is no choice: the loader knows it by this name.
DRIVER: Final = "libcuda.so.1"

_BELOW_HOME: Final = ("lib", "lib64", "")
_SYSTEM_FOLDERS: Final = ("usr/lib/*-linux-gnu", "usr/lib64", "usr/lib", "usr/local/lib", "lib64", "lib")


class Kind(NamedTuple):
    """A library that is looked for.

    Attributes:
        names: of its file, the best first.
        wheels: folders below a place where Python looks for modules, as patterns: a wheel may name its processors.
        folders: below /, besides those of the system.
        remedy: what to do where there is none.
    """

    names: tuple[str, ...]
    wheels: tuple[str, ...]
    folders: tuple[str, ...]
    remedy: str


NCCL: Final = Kind(
    ("libnccl.so.2",),
    ("nvidia/nccl/lib", "torch/lib"),
    ("usr/local/cuda/lib64",),
    f"pip install nvidia-nccl-cu12, or nvidia-nccl-cu13 for a driver of CUDA 13, or set {PATH}",
)
RCCL: Final = Kind(
    ("librccl.so.1", "librccl.so"),
    ("torch/lib", "_rocm_sdk_libraries*/lib"),
    ("opt/rocm/lib",),
    f"install ROCm's rccl, or set {PATH}",
)
HIP: Final = Kind(
    ("libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so"),
    ("torch/lib", "_rocm_sdk_core/lib"),
    ("opt/rocm/lib",),
    "install ROCm",
)


class Named(NamedTuple):
    """What the user says of where NCCL lies.

    Attributes:
        path: a file or a folder; nothing else then counts.
        home: a folder that holds a folder with it, as upstream's builds name it; searched first.
        folder: the folder with it, likewise.
    """

    path: Optional[str] = None
    home: Optional[str] = None
    folder: Optional[str] = None


class Found(NamedTuple):
    """The answer: a file and how it was found, in words; or why there is none, with what to do."""

    path: str = ""
    how: str = ""
    why_not: str = ""


class Machine(NamedTuple):
    """Where to look; tests have trees of their own.

    Attributes:
        root: of the file system.
        modules: places where Python looks for modules; None: those of this process.
    """

    root: str = "/"
    modules: Optional[Sequence[str]] = None


HERE: Final = Machine()


def named_in(environ: Mapping[str, str]) -> Named:
    """What an environment says, for programs that do not start a job."""
    return Named(*(environ.get(name, "").strip() or None for name in (PATH, HOME, FOLDER)))


def find(kind: Kind, named: Named, environ: Mapping[str, str], machine: Machine = HERE) -> Found:
    """The first library that is there and was made for this kind of processor.

    Args:
        kind: NCCL, or another of those above.
        named: by the user.
        environ: of this process; LD_LIBRARY_PATH counts.
        machine: where to look.
    """
    if named.path is not None:
        return _the_named(kind, os.path.abspath(named.path))
    foreign = ""
    for path, how in _candidates(kind, named, environ, machine):
        if _is_for_this_machine(path):
            return Found(path, how)
        foreign = foreign or f"; {path} is not a library for this processor"
    lost = "".join(
        f"; {variable}={given} holds none" for variable, given in ((HOME, named.home), (FOLDER, named.folder)) if given
    )
    return Found(why_not=f"{kind.names[0]} not found ({kind.remedy}){lost}{foreign}")


def is_loaded(kind: Kind) -> bool:
    """Whether this process has loaded such a library."""
    return bool(_loaded(kind, _read("/proc/self/maps")))


def _the_named(kind: Kind, path: str) -> Found:
    label = f"{PATH}={path}"
    if os.path.isdir(path):
        inside = next(_in_folders(kind, [path]), None)
        if inside is None:
            return Found(why_not=f"{label}: the folder holds no {kind.names[0]}")
        path = inside
    if not os.path.isfile(path):
        return Found(why_not=f"{label}: no such file or folder")
    if not _is_for_this_machine(path):
        return Found(why_not=f"{label}: {path} is not a library for this processor")
    return Found(path, f"{PATH} names it")


def _candidates(kind: Kind, named: Named, environ: Mapping[str, str], machine: Machine) -> Iterator[tuple[str, str]]:
    """Files that are there, and how each was found; the best first."""
    if named.home:
        for path in _in_folders(kind, [os.path.join(named.home, below) for below in _BELOW_HOME]):
            yield path, f"{HOME} leads to it"
    if named.folder:
        for path in _in_folders(kind, [named.folder]):
            yield path, f"{FOLDER} leads to it"
    for path in _loaded(kind, _read(os.path.join(machine.root, "proc/self/maps"))):
        yield path, "this process had loaded it"
    for place in sys.path if machine.modules is None else machine.modules:
        for path in _in_folders(kind, _below(place, kind.wheels) if place else []):
            yield path, "it is installed beside Python"
    if machine.modules is None:
        for path in _in_folders(kind, [os.path.join(sys.prefix, "lib")]):
            yield path, "it is installed beside Python"
    for path in _in_folders(kind, filter(None, environ.get("LD_LIBRARY_PATH", "").split(os.pathsep))):
        yield path, "LD_LIBRARY_PATH leads to it"
    for path in _cached(kind, machine.root):
        yield path, "the system's loader knows it"
    folders = (os.path.join(machine.root, folder) for folder in (*_SYSTEM_FOLDERS, *kind.folders))
    for path in _in_folders(kind, (place for folder in folders for place in sorted(glob.glob(folder)))):
        yield path, "it lies where the system has its libraries"


def _below(place: str, patterns: Iterable[str]) -> list[str]:
    return [path for pattern in patterns for path in sorted(glob.glob(os.path.join(glob.escape(place), pattern)))]


def _in_folders(kind: Kind, folders: Iterable[str]) -> Iterator[str]:
    for folder in folders:
        for name in kind.names:
            path = os.path.join(folder, name)
            if os.path.isfile(path):
                yield path


def _loaded(kind: Kind, maps: bytes) -> list[str]:
    """Files of this kind among those that a process has mapped; a file may have more digits than its name."""
    stems = tuple(os.fsencode(name) for name in kind.names)
    fields = (line.split(maxsplit=5) for line in maps.splitlines())
    paths = dict.fromkeys(words[5] for words in fields if len(words) == 6)
    return [os.fsdecode(path) for path in paths if path.rpartition(b"/")[2].startswith(stems) and os.path.isfile(path)]


def _cached(kind: Kind, root: str) -> list[str]:
    """What ldconfig has found: the cache holds names and paths as texts, each with a zero at its end."""
    cache = _read(os.path.join(root, "etc/ld.so.cache"))
    found = []
    for name in kind.names:
        paths = re.findall(rb"(/[^\0]*/" + re.escape(os.fsencode(name)) + rb")\0", cache)
        found += [os.path.join(root, os.fsdecode(path).lstrip("/")) for path in dict.fromkeys(paths)]
    return [path for path in found if os.path.isfile(path)]


def _is_for_this_machine(path: str) -> bool:
    """Whether a file is a library of the word size and processor that this program has: 32-bit libraries of a driver
    lie in the same cache."""
    return _nature(path) == _nature("/proc/self/exe")


def _nature(path: str) -> bytes:
    head = _read(path, 20)  # an ELF header: mark, word size, order of bytes; at 18 the processor
    return head[:6] + head[18:20]


def _read(path: str, count: int = -1) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(count)
    except OSError:
        return b""
