"""How each launcher is asked for N ranks of a command on this host: facts, no processes.

`STARTERS` is what the tests run over. The folders are those of `tools/launcher_envs.py`.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Optional

from jobs import ROOT

ENVS = ROOT / "build" / "launchers"
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

Words = list[str]


@dataclass(frozen=True)
class Starter:
    """One launcher.

    Attributes:
        id: for the test's name, and the folder of its venv.
        name: what `detect_placement` is to call it.
        program: its command.
        count: the words that ask for N ranks.
        variables: the words that give the ranks variables, or None: they are simply inherited.
        environ: variables of the launcher itself.
        others_may_speak: when a rank is killed by a signal, the others live long enough to raise.
        plain: prefix for a command that is no Python script, where the launcher wants one.
    """

    id: str
    name: str
    program: str
    count: Callable[[int], Words]
    variables: Optional[Callable[[Mapping[str, str]], Words]] = None
    environ: Mapping[str, str] = field(default_factory=dict)
    others_may_speak: bool = True
    plain: Words = field(default_factory=list)

    def path(self) -> str:
        """Where its programs are looked for: its venv (or where our own Python is), then the system."""
        return os.pathsep.join([str(ENVS / self.id / "bin"), str(Path(sys.executable).parent), SYSTEM_PATH])

    def why_absent(self) -> Optional[str]:
        """Why it cannot be used here; None if it can."""
        own = self.id in ("torchrun", "srun")
        found = shutil.which(self.program, path=self.path() if own else str(ENVS / self.id / "bin"))
        if found is not None:
            return None
        folder = "slurm" if self.id == "srun" else self.id
        reason = ENVS / f"{folder}.reason"
        if reason.is_file():
            return f"{self.program} is not installed: {reason.read_text()}."
        return f"{self.program} is not installed; `make launchers` installs it."

    def command(
        self, n: int, command: Words, variables: Optional[Mapping[str, str]] = None, wrapped: bool = False
    ) -> Words:
        """The command line for n ranks of `command`.

        Args:
            n: number of ranks.
            command: a program and its words.
            variables: for the ranks, given by the launcher's own means where it has some.
            wrapped: each rank is the child of a shell.
        """
        given = self.variables(variables) if self.variables and variables else []
        # "exit" keeps the shell from making way for its last command.
        rank = ["sh", "-c", '"$0" "$@"; exit $?', *command] if wrapped else command
        return [self.program, *self.count(n), *given, *self.plain, *rank]


def _each(flag: str) -> Callable[[Mapping[str, str]], Words]:
    return lambda variables: [word for name, value in variables.items() for word in (flag, f"{name}={value}")]


def _pairs(flag: str) -> Callable[[Mapping[str, str]], Words]:
    return lambda variables: [word for name, value in variables.items() for word in (flag, name, value)]


def _exported(variables: Mapping[str, str]) -> Words:
    return ["--export=" + ",".join(["ALL", *(f"{name}={value}" for name, value in variables.items())])]


# The variables of both say that root may, where the words of 4 and 5 differ.
_AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

STARTERS = (
    # A port of its own for each job: torchrun's default would let only one run at a time.
    Starter(
        "torchrun",
        "torchrun",
        "torchrun",
        lambda n: ["--nnodes=1", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", f"--nproc-per-node={n}"],
        plain=["--no-python"],
    ),
    Starter(
        "openmpi5",
        "Open MPI",
        "mpirun",
        lambda n: ["--map-by", ":OVERSUBSCRIBE", "-np", str(n)],
        _each("-x"),
        _AS_ROOT,
    ),
    Starter("openmpi4", "Open MPI", "mpirun", lambda n: ["--oversubscribe", "-np", str(n)], _each("-x"), _AS_ROOT),
    # MPICH's Hydra answers a signal in one rank with SIGKILL for all, at once.
    Starter("mpich", "MPICH", "mpiexec", lambda n: ["-np", str(n)], _pairs("-genv"), others_may_speak=False),
    Starter("intel", "Intel MPI", "mpiexec.hydra", lambda n: ["-np", str(n)], _pairs("-genv")),
    Starter("srun", "srun", "srun", lambda n: ["-n", str(n)], _exported),
)
BY_ID = {starter.id: starter for starter in STARTERS}
