"""Runs one job with one fault, and tells what every rank and the launcher made of it.

Used by the fault tests and `benchmarks/faults.py`. The fault is data (`FAULT` in the environment of `fault_worker.py`);
ranks report through files, so what a killed rank said before its death is kept.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Optional

from .leftovers import Watch

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
WORKER = HERE / "fault_worker.py"
PATIENCE_S = 60.0
_RETRY_S = 0.002


@dataclass(frozen=True)
class Fault:
    """What happens to whom.

    Attributes:
        phase: a phase of `fault_worker.py`.
        rank: the victim.
        how: KILL, SEGV, STOP (signals), EXIT (`os._exit(1)`), RAISE (an exception that nobody catches) or NONE.
    """

    phase: str
    rank: int = 1
    how: str = "KILL"

    def text(self) -> str:
        """As the worker reads it."""
        return f"rank={self.rank},phase={self.phase},how={self.how}"


@dataclass
class Story:
    """How a job went.

    Attributes:
        code: the launcher's exit code.
        stdout, stderr: of the launcher.
        events: what the ranks reported, in the order of time.
        leftovers: what is there that was not there before.
        size: number of ranks.
        ended_s: when the launcher had ended, on the ranks' clock.
    """

    code: int
    stdout: str
    stderr: str
    events: list[dict[str, Any]]
    leftovers: list[str]
    size: int
    ended_s: float

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The events of this kind."""
        return [event for event in self.events if event["event"] == kind]

    @property
    def fault_s(self) -> float:
        """When the fault happened."""
        return float(self.of("fault")[0]["at"])

    @property
    def worst_s(self) -> float:
        """From the fault until the last of the others had raised (or finished)."""
        return max(event["at"] for event in self.of("raised") + self.of("finished")) - self.fault_s

    @property
    def report(self) -> str:
        """First line of the launcher's report; empty if there is none. How the start went on does not belong to it."""
        lines = [
            line for line in self.stderr.splitlines() if line.startswith("horovodrun: ") and "waiting for" not in line
        ]
        return lines[0] if lines else ""

    def __str__(self) -> str:
        events = "\n".join(map(json.dumps, self.events))
        return f"code {self.code}\n{events}\nleftovers {self.leftovers}\n{self.stderr[-6000:]}"


@dataclass
class Job:
    """A running job; use `run` where the whole of it is wanted.

    Args:
        fault: of the job.
        size: number of ranks.
        environ: further variables of the ranks.
        whole_machine: see `Watch`.
    """

    fault: Fault
    size: int = 3
    environ: dict[str, str] = field(default_factory=dict)
    whole_machine: bool = False

    def __enter__(self) -> Job:
        self.folder = Path(tempfile.mkdtemp(prefix="hvdfault"))
        self.events = self.folder / "events"
        places = [self.folder / "run", self.folder / "tmp"]
        for place in (self.events, *places):
            place.mkdir(mode=0o700)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("HOROVOD", "OMP_"))}
        if "HOROVOD_LIBRARY" in os.environ:
            kept["HOROVOD_LIBRARY"] = os.path.abspath(os.environ["HOROVOD_LIBRARY"])
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
        environ = {
            **kept,
            "PYTHONPATH": path,
            "FAULT": self.fault.text(),
            "FAULT_EVENTS": str(self.events),
            "TMPDIR": str(places[1]),
            "XDG_RUNTIME_DIR": str(places[0]),
            **self.environ,
        }
        self.watch = Watch(f"FAULT_EVENTS={self.events}", places, self.whole_machine)
        # Files, not pipes: a pipe that nobody reads would stop the job, and a leftover process would keep it open.
        self._streams = [(self.folder / name).open("w+b") for name in ("stdout", "stderr")]
        self.launcher = subprocess.Popen(
            [sys.executable, "-m", "horovod.runner", "-np", str(self.size), sys.executable, str(WORKER)],
            stdin=subprocess.DEVNULL,
            stdout=self._streams[0],
            stderr=self._streams[1],
            env=environ,
        )
        return self

    def __exit__(self, *_: object) -> None:
        if self.launcher.poll() is None:
            self.launcher.kill()
            self.launcher.wait()
        for pid in self.watch.processes():
            self.signal(pid, signal.SIGKILL)
        for stream in self._streams:
            stream.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def signal(self, pid: int, number: int) -> None:
        """Sends a signal to a process of the job that may have ended."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    def reports(self) -> list[dict[str, Any]]:
        """What the ranks have said so far."""
        events = []
        for path in self.events.glob("events.*"):
            text = path.read_text()
            events += [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
        return sorted(events, key=lambda event: float(event["at"]))

    def await_reports(self, kind: str, n: int) -> list[dict[str, Any]]:
        """Waits until n events of a kind have come."""
        return self.until(lambda: [event for event in self.reports() if event["event"] == kind], n)

    def await_text(self, text: str) -> str:
        """Waits until the job has written this; all of its stderr so far."""
        found = self.until(lambda: [self._text(1)] if text in self._text(1) else [], 1)
        return str(found[0])

    def until(self, look: Callable[[], list[Any]], n: int) -> list[Any]:
        """Waits until `look` finds n things."""
        deadline = time.monotonic() + PATIENCE_S
        found = look()
        while len(found) < n:
            if time.monotonic() > deadline or (self.launcher.poll() is not None and len(look()) < n):
                raise AssertionError(f"waited for {n} things, found {found}.\n{self.reports()}\n{self._text(1)}")
            time.sleep(_RETRY_S)
            found = look()
        return found

    def end(self) -> Story:
        """Waits for the launcher's end."""
        try:
            self.launcher.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            processes = self.watch.processes()
            for event in self.reports():
                self.signal(event["pid"], signal.SIGUSR1)  # the worker then writes where its threads are
            time.sleep(1.0)
            raise AssertionError(f"the job does not end.\n{self.reports()}\n{processes}\n{self._text(1)}") from None
        ended_s = time.monotonic()
        return Story(
            self.launcher.returncode,
            self._text(0),
            self._text(1),
            self.reports(),
            self.watch.leftovers(),
            self.size,
            ended_s,
        )

    def _text(self, which: int) -> str:
        stream = self._streams[which]
        return Path(stream.name).read_text(errors="replace")


def run(fault: Fault, size: int = 3, environ: Optional[dict[str, str]] = None, whole_machine: bool = False) -> Story:
    """Runs a job with a fault to its end."""
    with Job(fault, size, environ or {}, whole_machine) as job:
        return job.end()
