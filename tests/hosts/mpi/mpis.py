"""How each MPI is asked for ranks on several hosts, by ssh. The folders are those of `tools/launcher_envs.py`."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from ..conftest import ROOT

ENVS = ROOT / "build" / "launchers"
MPI4PY = ENVS / "mpi4py"

Words = list[str]


@dataclass(frozen=True)
class Mpi:
    """One implementation.

    Attributes:
        id: for the test's name, and the folder of its venv.
        name: what `detect_placement` calls it.
        library: below the venv.
        program: its launcher.
        counts: the words for so many ranks on each of these hosts.
        variable: the words that give the ranks a variable.
    """

    id: str
    name: str
    library: str
    program: str
    counts: Callable[[Sequence[int], Sequence[str]], Words]
    variable: Callable[[str, str], Words]

    @property
    def folder(self) -> Path:
        """Of its venv."""
        return ENVS / self.id

    def why_absent(self) -> Optional[str]:
        """Why it cannot be used here; None if it can."""
        if shutil.which(self.program, path=str(self.folder / "bin")):
            return None
        reason = ENVS / f"{self.id}.reason"
        why = reason.read_text() if reason.is_file() else "`make launchers` installs it"
        return f"{self.id} is not installed: {why}."

    def command(
        self,
        counts: Sequence[int],
        rank: Words,
        variables: Mapping[str, str],
        names: Sequence[str] = ("host1", "host2", "host3"),
    ) -> Words:
        """The command line for so many ranks on each of these hosts."""
        given = [word for name, value in variables.items() for word in self.variable(name, value)]
        return [str(self.folder / "bin" / self.program), *self.counts(counts, names), *given, *rank]


def site_packages(folder: Path) -> str:
    """Where the packages of a venv lie."""
    return str(next(iter((folder / "lib").glob("python3*/site-packages")), folder))


def _slots(counts: Sequence[int], names: Sequence[str]) -> str:
    return ",".join(f"{name}:{count}" for name, count in zip(names, counts))


def _each_host(counts: Sequence[int], names: Sequence[str]) -> str:
    return ",".join(name for name, count in zip(names, counts) for _ in range(count))


def _total(counts: Sequence[int]) -> Words:
    return ["-np", str(sum(counts))]


def _x(name: str, value: str) -> Words:
    return ["-x", f"{name}={value}"]


def _genv(name: str, value: str) -> Words:
    return ["-genv", name, value]


_ROOT_MAY = ["--allow-run-as-root", "--mca", "btl_tcp_if_include", "eth0"]

MPIS = (
    Mpi(
        "openmpi4",
        "Open MPI",
        "lib/libmpi.so.40",
        "mpirun",
        lambda counts, names: [*_ROOT_MAY, "--oversubscribe", "-H", _slots(counts, names), *_total(counts)],
        _x,
    ),
    Mpi(
        "openmpi5",
        "Open MPI",
        "lib/libmpi.so.40",
        "mpirun",
        lambda counts, names: [
            *_ROOT_MAY,
            "--map-by",
            "slot:OVERSUBSCRIBE",
            "-H",
            _slots(counts, names),
            *_total(counts),
        ],
        _x,
    ),
    Mpi(
        "mpich",
        "MPICH",
        "lib/libmpi.so.12",
        "mpiexec",
        lambda counts, names: ["-launcher", "ssh", "-hosts", _slots(counts, names), *_total(counts)],
        _genv,
    ),
    # One rank for each word: -ppn would want as many on every host.
    Mpi(
        "intel",
        "Intel MPI",
        "lib/libmpi.so.12",
        "mpiexec.hydra",
        lambda counts, names: ["-bootstrap", "ssh", "-ppn", "1", "-hosts", _each_host(counts, names), *_total(counts)],
        _genv,
    ),
)
BY_ID = {mpi.id: mpi for mpi in MPIS}
