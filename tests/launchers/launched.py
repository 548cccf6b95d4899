"""Runs a command that starts ranks of `launcher_worker.py`, and tells what they reported and what stayed behind.

Used by the tests of this folder. How a launcher is asked for ranks is in `starters`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional

from faults.leftovers import Watch

from .starters import ROOT, SYSTEM_PATH, Starter, Words

WORKER = Path(__file__).resolve().parent / "launcher_worker.py"
PATIENCE_S = 60.0
# torchrun keeps its log folder. The rest are names in /dev/shm of MPI libraries, which our ranks do not load.
_NOT_OURS = re.compile(r"/torchelastic_|shared_memory: (sm_segment|mpich_shm|vader_segment|Intel_MPI)")
# What other launchers, or the one that runs these tests, may have put into our own environment.
_FOREIGN = (
    "HOROVOD",
    "OMP_",
    "OMPI_",
    "PMI",
    "PRTE_",
    "MPI_",
    "SLURM",
    "I_MPI",
    "HYDRA",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_",
    "MASTER_",
    "TORCHELASTIC",
)


class Place:
    """Private folders for jobs: where ranks meet and launchers keep their files (`shared`), and where ranks report."""

    def __enter__(self) -> Place:
        self.folder = Path(tempfile.mkdtemp(prefix="hvdl"))
        self.shared = [self.folder / name for name in ("run", "tmp")]
        for folder in self.shared:
            folder.mkdir(mode=0o700)
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


class Job:
    """One job in a place.

    Args:
        place: may be shared with other jobs.
        name: of the job in it.
        environ: variables of the launcher, and so of the ranks where it hands them on.
    """

    def __init__(self, place: Place, name: str = "job", environ: Optional[Mapping[str, str]] = None) -> None:
        self.reports = place.folder / name
        self.reports.mkdir()
        kept = {key: value for key, value in os.environ.items() if not key.startswith(_FOREIGN)}
        if "HOROVOD_LIBRARY" in os.environ:
            kept["HOROVOD_LIBRARY"] = os.path.abspath(os.environ["HOROVOD_LIBRARY"])
        self.environ = {
            **kept,
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), SYSTEM_PATH]),
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")])),
            "OMP_NUM_THREADS": "1",
            "XDG_RUNTIME_DIR": str(place.shared[0]),
            "TMPDIR": str(place.shared[1]),
            "LAUNCHED_REPORTS": str(self.reports),
            **(environ or {}),
        }
        self._watch = Watch(f"LAUNCHED_REPORTS={self.reports}", place.shared)
        self._launcher: Optional[subprocess.Popen[bytes]] = None

    def start(self, command: Words, cwd: Optional[Path] = None) -> None:
        """Starts the launcher; its output goes to a file, so that a process that stays behind holds no pipe."""
        found = shutil.which(command[0], path=self.environ["PATH"])
        if found is None:
            raise FileNotFoundError(f"{command[0]} is not on {self.environ['PATH']}")
        with (self.reports / "output").open("wb") as out:
            self._launcher = subprocess.Popen(
                [found, *command[1:]], stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=self.environ, cwd=cwd
            )

    def end(self) -> Ended:
        """Waits for the end of the launcher; kills all of the job if that does not come."""
        if self._launcher is None:
            raise RuntimeError("the job was not started")
        try:
            code = self._launcher.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            code = -1
        ended = Ended(code, time.monotonic(), self.events(), (self.reports / "output").read_text(errors="replace"))
        if code != -1:
            ended.leftovers = [name for name in self._watch.leftovers() if not _NOT_OURS.search(name)]
        self._kill()
        return ended

    def events(self) -> list[dict[str, Any]]:
        """What the ranks have said, in the order of time."""
        lines = [line for path in self.reports.glob("report.*") for line in path.read_text().splitlines()]
        return sorted((json.loads(line) for line in lines), key=lambda event: float(event["at"]))

    def _kill(self) -> None:
        if self._launcher is not None and self._launcher.poll() is None:
            self._launcher.kill()
            self._launcher.wait()
        for pid in self._watch.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


class Ended:
    """How a job went.

    Attributes:
        code: exit code of the launcher; -1: it did not end.
        ended_s: when, on the monotonic clock of the ranks.
        events: what the ranks reported.
        output: of the launcher and the ranks.
        leftovers: what was there a while after the end and not before.
    """

    def __init__(self, code: int, ended_s: float, events: list[dict[str, Any]], output: str) -> None:
        self.code, self.ended_s, self.events, self.output = code, ended_s, events, output
        self.leftovers: list[str] = []

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The events of a kind, by rank."""
        return sorted(
            (event for event in self.events if event["event"] == kind), key=lambda event: event.get("rank", -1)
        )

    def __str__(self) -> str:
        said = "\n".join(json.dumps(event) for event in self.events)
        return f"code {self.code}\n{said}\nleftovers {self.leftovers}\n{self.output[-5000:]}"


def worker(part: str) -> Words:
    """The command of a rank."""
    return [sys.executable, str(WORKER), part]


def job_of(starter: Starter, place: Place, name: str = "job", environ: Optional[Mapping[str, str]] = None) -> Job:
    """A job for this launcher."""
    return Job(place, name, {"PATH": starter.path(), **starter.environ, **(environ or {})})


def assert_worked(ended: Ended, size: int, launcher: str) -> None:
    """Every rank did everything, knows its place, and nothing stayed behind."""
    worked = ended.of("worked")
    assert ended.code == 0, str(ended)
    assert [event["rank"] for event in worked] == list(range(size)), str(ended)
    # Open MPI 5 numbers the ranks of a host in the order of their cores, which need not be that of the ranks.
    assert sorted(event["local_rank"] for event in worked) == list(range(size)), str(ended)
    for event in worked:
        assert event["wrong"] == [], str(ended)
        place = {name: event[name] for name in ("size", "local_size", "cross_rank", "cross_size")}
        expected = {"size": size, "local_size": size, "cross_rank": 0, "cross_size": 1}
        assert place == expected, str(ended)
        assert event["launcher"] == launcher, str(ended)
    assert ended.leftovers == [], str(ended)
