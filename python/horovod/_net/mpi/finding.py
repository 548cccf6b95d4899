"""Which MPI library this process uses: the one that the user names, that is loaded already, or that belongs to the
launcher.

A library of another MPI than the launcher's would start, and take each process for a job of its own. So what the
process has loaded (such as mpi4py's) comes first, then what lies where the launcher lies, and only then what the system
would load. Pure but for looking at files and at /proc. Used by library.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple, Optional

SETTING: Final = "HOROVOD_MPI_LIBRARY"

# The names under which libraries install themselves, those with most users first: Open MPI since 2.0, MPICH and those
# with its interface, Cray's, IBM's, and the standard's.
NAMES: Final = (
    "libmpi.so.40",
    "libmpi.so.12",
    "libmpi_abi.so.1",
    "libmpi_abi.so.0",
    "libmpi.so.20",
    "libmpi_gnu.so.12",
    "libmpi_cray.so.12",
    "libmpi_ibm.so.3",
    "libmpich.so.12",  # Debian's MPICH
)
_LOADED: Final = re.compile(r"/lib(mpi|mpi_abi|mpich|mpi_cray|mpi_gnu(_[0-9]+)?|mpi_ibm)\.so(\.[0-9.]+)?$")
_FOLDERS: Final = ("lib", "lib64", "lib/release", "lib/*-linux-gnu")  # below where an MPI is installed
_STARTERS: Final = ("mpirun", "mpiexec", "mpiexec.hydra", "prterun", "orterun")
_MOST_ANCESTORS: Final = 64


class Candidate(NamedTuple):
    """A library that may be the one.

    Attributes:
        path: of the file, or a name for the system's loader.
        why: how it was found, in words.
        sure: the user or the process has decided; there is no looking further.
    """

    path: str
    why: str
    sure: bool = False


def candidates(named: Optional[str], environ: Mapping[str, str]) -> Iterator[Candidate]:
    """The libraries that may be the right one, the likeliest first; files that are there, each once.

    Args:
        named: by the user; nothing else then counts.
        environ: of this process.
    """
    if named:
        yield Candidate(named, f"{SETTING} names it", sure=True)
        return
    loaded = loaded_libraries(_read("/proc/self/maps"))
    if loaded:
        yield Candidate(loaded[0], "this process had loaded it", sure=True)
        return
    seen: set[str] = set()
    for prefix, why in _prefixes(environ):
        for path in _below(prefix):
            if os.path.realpath(path) not in seen:
                seen.add(os.path.realpath(path))
                yield Candidate(path, why)
    for folder in environ.get("LD_LIBRARY_PATH", "").split(os.pathsep):
        for path in _in_folder(folder) if folder else ():
            if os.path.realpath(path) not in seen:
                seen.add(os.path.realpath(path))
                yield Candidate(path, "LD_LIBRARY_PATH leads to it")
    for name in NAMES:
        yield Candidate(name, "the system's loader knows it")


def loaded_libraries(maps: str) -> list[str]:
    """The MPI libraries among the files that a process has mapped.

    Args:
        maps: the text of /proc/PID/maps.
    """
    paths = (line.split(maxsplit=5)[5] for line in maps.splitlines() if len(line.split(maxsplit=5)) == 6)
    return list(dict.fromkeys(path for path in paths if _LOADED.search(path)))


def is_installed(environ: Mapping[str, str], named: Optional[str] = None) -> bool:
    """Whether there is a library that could be opened; none is."""
    for candidate in candidates(named, environ):
        if os.path.isabs(candidate.path):
            if os.path.isfile(candidate.path):
                return True
        elif any(_in_folder(folder, (candidate.path,)) for folder in _system_folders()):
            return True
    return False


def _system_folders() -> list[str]:
    return [*glob.glob("/usr/lib/*-linux-gnu"), "/usr/lib64", "/usr/lib", "/usr/local/lib", "/lib64", "/lib"]


def _prefixes(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Where an MPI may be installed, and why: that of the launcher before others."""
    for name in ("OPAL_PREFIX", "I_MPI_ROOT"):  # set by the launchers themselves
        if environ.get(name):
            yield environ[name], f"{name} leads to it"
    for program in _ancestors():
        yield os.path.dirname(os.path.dirname(program)), f"it lies beside {program}, which started this process"
    for folder in environ.get("PATH", "").split(os.pathsep):
        if any(os.access(os.path.join(folder, name), os.X_OK) for name in _STARTERS):
            yield os.path.dirname(os.path.realpath(folder)), f"it lies beside the mpirun in {folder}, which PATH has"
    yield sys.prefix, "it is installed beside Python"


def _ancestors() -> Iterator[str]:
    """The programs of the processes that have started this one, the nearest first, as far as they can be seen."""
    pid = os.getppid()
    for _ in range(_MOST_ANCESTORS):
        if pid <= 1:
            return
        with contextlib.suppress(OSError):  # another user's
            yield os.readlink(f"/proc/{pid}/exe")
        status = _read(f"/proc/{pid}/stat")
        fields = status[status.rfind(")") + 2 :].split()
        pid = int(fields[1]) if len(fields) > 1 else 0


def _below(prefix: str) -> list[str]:
    found: list[str] = []
    for pattern in _FOLDERS:
        for folder in sorted(glob.glob(os.path.join(glob.escape(prefix), pattern))):
            found += _in_folder(folder)
    return found


def _in_folder(folder: str, names: Iterable[str] = NAMES) -> list[str]:
    return [path for path in (os.path.join(folder, name) for name in names) if os.path.isfile(path)]


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
