"""A job from its start to its end: a command, the processes it starts, what they say and what they leave.

A job lives in a place; when the `with` block of the place ends, its processes are ended by their ids and its files are
removed, however the test went.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Optional

from .leftovers import Watch
from .report import VARIABLE, events_in
from .variables import environment

PATIENCE_S = 60.0
_RETRY_S = 0.002


class Hangs(AssertionError):
    """A job did not end, or did not come to where the test waits for it; the text says how far it came."""


@dataclass
class Ended:
    """How a job went.

    Attributes:
        code: exit code of the command.
        stdout, stderr: of the command and all it started.
        events: what the ranks reported, in the order of time.
        ended_s: when the command had ended, on the ranks' monotonic clock.
        leftovers: what is there that was not there before, if that was asked.
    """

    code: int
    stdout: str
    stderr: str
    events: list[dict[str, Any]]
    ended_s: float
    leftovers: list[str] = field(default_factory=list)

    @property
    def output(self) -> str:
        """Both streams, one after the other."""
        return self.stdout + self.stderr

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The events of a kind, in the order of time."""
        return [event for event in self.events if event["event"] == kind]

    def __str__(self) -> str:
        events = "\n".join(map(json.dumps, self.events))
        return f"code {self.code}\n{events}\nleftovers {self.leftovers}\n{self.output[-6000:]}"


class Place:
    """Private folders for jobs, which find one another there if they are to meet.

    Args:
        whole_machine: nothing else runs here, so new names in the machine's shared places count as leftovers too.

    Attributes:
        folder: of the jobs.
        shared: in it, where ranks meet and where they keep temporary files.
    """

    def __init__(self, whole_machine: bool = False) -> None:
        self.whole_machine = whole_machine
        self.jobs: list[Job] = []

    def __enter__(self) -> Place:
        self.folder = Path(tempfile.mkdtemp(prefix="hvdjob"))
        self.shared = [self.folder / name for name in ("run", "tmp")]
        for folder in self.shared:
            folder.mkdir(mode=0o700)
        return self

    def __exit__(self, *_: object) -> None:
        for job in self.jobs:
            job.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


class Job:
    """One job in a place.

    Args:
        place: may be shared with other jobs.
        environ: further variables.
        name: of the job in its place.

    Attributes:
        reports: the folder of its ranks' reports.
    """

    def __init__(self, place: Place, environ: Optional[Mapping[str, str]] = None, name: str = "job") -> None:
        self.reports = place.folder / name
        self.reports.mkdir(mode=0o700)
        own = {"XDG_RUNTIME_DIR": str(place.shared[0]), "TMPDIR": str(place.shared[1]), VARIABLE: str(self.reports)}
        self._environ = {**environment(), **own, **(environ or {})}
        self._watch = Watch(f"{VARIABLE}={self.reports}", place.shared, place.whole_machine)
        self._process: Optional[subprocess.Popen[bytes]] = None
        place.jobs.append(self)

    def start(self, command: Sequence[str], cwd: Optional[Path] = None) -> None:
        """Starts the command."""
        # Files, not pipes: a pipe that nobody reads would stop the job, and a process left behind would keep it open.
        with (self.reports / "stdout").open("wb") as stdout, (self.reports / "stderr").open("wb") as stderr:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, env=self._environ, cwd=cwd
            )

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The command's own process."""
        if self._process is None:
            raise RuntimeError("the job was not started")
        return self._process

    @property
    def output(self) -> str:
        """What it has written so far."""
        return self._text("stdout") + self._text("stderr")

    def events(self, kind: str = "") -> list[dict[str, Any]]:
        """What the ranks have said so far, all of it or of one kind, in the order of time."""
        return [event for event in events_in(self.reports) if kind in ("", event["event"])]

    def processes(self) -> dict[int, str]:
        """The processes that the command has started, itself included: id and command line."""
        return self._watch.processes()

    def await_events(self, kind: str, n: int) -> list[dict[str, Any]]:
        """Waits until n events of a kind have come."""
        return self.until(lambda: self.events(kind), n)

    def await_text(self, text: str) -> str:
        """Waits until the job has written this; all of its output so far."""
        self.until(lambda: [text] if text in self.output else [], 1)
        return self.output

    def until(self, look: Callable[[], list[Any]], n: int = 1, patience_s: float = PATIENCE_S) -> list[Any]:
        """Waits until `look` finds n things while the job runs."""
        deadline = time.monotonic() + patience_s
        while len(found := look()) < n:
            if time.monotonic() > deadline or (self.process.poll() is not None and len(look()) < n):
                raise Hangs(f"Waited for {n} things, found {found}.\n{self}")
            time.sleep(_RETRY_S)
        return found

    def signal(self, pid: int, number: int) -> None:
        """Sends a signal to a process of the job that may have ended."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    def wait(self, patience_s: float = PATIENCE_S) -> int:
        """Waits for the end of the command; its exit code."""
        try:
            return self.process.wait(patience_s)
        except subprocess.TimeoutExpired:
            raise Hangs(f"The job did not end within {patience_s:g} s.\n{self}") from None

    def end(self, patience_s: float = PATIENCE_S, leftovers: bool = False) -> Ended:
        """Waits for the end of the command; with `leftovers` also for that of all it started."""
        code, ended_s = self.wait(patience_s), time.monotonic()
        left = self._watch.leftovers() if leftovers else []
        return Ended(code, self._text("stdout"), self._text("stderr"), self.events(), ended_s, left)

    def kill(self) -> None:
        """Ends what is left of the job, each process by its id."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        for pid in self.processes():
            self.signal(pid, signal.SIGKILL)

    def _text(self, stream: str) -> str:
        path = self.reports / stream
        return path.read_text(errors="replace") if path.exists() else ""

    def __str__(self) -> str:
        events = "\n".join(map(json.dumps, self.events()))
        return f"{self.process.args}\n{events}\nprocesses {self.processes()}\n{self.output[-6000:]}"


def run(
    command: Sequence[str],
    environ: Optional[Mapping[str, str]] = None,
    cwd: Optional[Path] = None,
    patience_s: float = 110.0,
) -> Ended:
    """Runs a command to its end in a place of its own, whatever its exit code."""
    with Place() as place:
        job = Job(place, environ)
        job.start(command, cwd)
        return job.end(patience_s)


def run_well(command: Sequence[str], environ: Optional[Mapping[str, str]] = None, **more: Any) -> str:
    """Runs a command that must succeed; its standard output."""
    ended = run(command, environ, **more)
    assert ended.code == 0, str(ended)
    return ended.stdout
