"""Runs a job on several hosts with one fault in one phase, and tells what everybody made of it.

Used by the tests and by `fault_table`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jobs.report import VARIABLE, events_in

from ..conftest import ROOT, Hosts
from ..network import Network
from .fault_kinds import DEADLINE_S, START_S, VICTIM, fault_of

RANKS = Path(__file__).with_name("fault_ranks.py")
PATIENCE_S = 90.0
_SIZE = 4
_ELSEWHERE = (0, 3)  # on other hosts than the victim
_OPTIONS = f"-np {_SIZE} -H host1:1,host2:2,host3:1"
_LARGE_MB = 48
_RATE = "400mbit"  # so that a large tensor takes seconds
_RETRY_S = 0.005


@dataclass
class Story:
    """How a job with a fault went.

    Attributes:
        code: of the launcher.
        said: by the launcher and the ranks, on stderr.
        events: of the ranks.
        applied_s: when the fault had been done.
        ended_s: when the last rank, wherever, had ended.
        launcher_s: when the launcher had.
        left: what is still there of the job, on any host.
    """

    code: int = 0
    said: str = ""
    events: list[dict[str, Any]] = field(default_factory=list)
    applied_s: float = 0.0
    ended_s: float = 0.0
    launcher_s: float = 0.0
    left: list[str] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """From the fault until every rank had ended."""
        return self.ended_s - self.applied_s

    @property
    def told(self) -> str:
        """When each rank raised or finished, in seconds from the fault."""
        ends = [event for event in self.events if event["event"] in ("raised", "finished")]
        return ", ".join(f"rank {event['rank']} {event['event']} {event['at'] - self.applied_s:.1f}" for event in ends)

    @property
    def headline(self) -> str:
        """The first line of the launcher's report."""
        lines = [line for line in self.said.splitlines() if line.startswith("horovodrun: ")]
        return lines[-1] if lines else ""


class FaultCase:
    """A job whose victim comes to a phase, where a fault happens.

    Args:
        hosts: three of them.
        fault, phase: see `fault_kinds`.

    Attributes:
        network: of the hosts.
        running: the launcher.
        disk: a small disk of its own, on the launcher's host.
    """

    def __init__(self, hosts: Hosts, fault: str, phase: str) -> None:
        self.fault, self.phase = fault_of(fault, phase), phase
        self.network: Network = hosts.network
        self._hosts = hosts
        self._marks = Path(tempfile.mkdtemp(prefix="hvdfault"))
        self.disk = self._marks / "disk"
        self.victim_pid = 0

    def run(self) -> Story:
        """Runs it to its end, and puts everything back."""
        story = Story()
        undone = True
        sockets = {host.name: host.sockets() for host in self.network.hosts}
        with contextlib.ExitStack() as undo:
            undo.callback(shutil.rmtree, self._marks, ignore_errors=True)
            self._prepare(undo)
            self._start()
            undo.callback(self._kill)
            self._await_victim()
            undone = False
            self.fault.apply(self)
            story.applied_s = time.monotonic()
            (self._marks / "applied").touch()
            try:
                if self.fault.again_s:
                    time.sleep(self.fault.again_s)  # it is what happens, not a wait
                    self.fault.undo(self)
                    undone = True
                self._follow(story)
            finally:
                if not undone:
                    self.fault.undo(self)
            self._collect(story, sockets)
        return story

    def victim(self) -> int:
        """Its process, as this one sees it."""
        return self.victim_pid

    def process_on(self, host: int, *words: str) -> int:
        """The first process on a host whose command has one of these words, but for a shell."""
        found = self.network[host].processes()
        own = {pid: text for pid, text in found.items() if " -c " not in text[:12]}
        return min(pid for pid, text in own.items() if any(word in text for word in words))

    def on(self, host: int, line: str) -> None:
        """Runs a line of the shell on a host."""
        done = self.network[host].start(["sh", "-c", line], self._hosts.environ, cwd="/").end()
        assert done.returncode == 0, done.stderr

    @staticmethod
    def signal(pid: int, number: int) -> None:
        """To a process that may have ended."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    def _prepare(self, undo: contextlib.ExitStack) -> None:
        self.disk.mkdir()
        self.on(1, f"mount -t tmpfs -o size=256k tmpfs {self.disk}")
        undo.callback(self.on, 1, f"umount -l {self.disk}")
        if self.phase == "large":
            self.network.shape("tbf", "rate", _RATE, "burst", "256kb", "latency", "200ms")
            undo.callback(self.network.unshape)

    def _start(self) -> None:
        variables = {
            VARIABLE: str(self._marks),
            "FAULT_PHASE": self.phase,
            "FAULT_VICTIM": str(VICTIM),
            "FAULT_LARGE_MB": str(_LARGE_MB),
            "HOROVOD_START_TIMEOUT": str(START_S),
            "HOROVOD_GLOO_TIMEOUT_SECONDS": str(DEADLINE_S),
            "HOROVOD_STALL_CHECK_TIME_SECONDS": "1",
            "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": str(DEADLINE_S),
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join([str(ROOT / "python"), str(ROOT / "tests")]),
        }
        options = f"{_OPTIONS} {self.fault.options.format(disk=self.disk)}"
        files = {name: (self._marks / name).open("wb") for name in ("stdout", "stderr")}
        with contextlib.ExitStack() as opened:
            for file in files.values():
                opened.enter_context(file)
            self.running = self._hosts.start(options, [sys.executable, str(RANKS)], environ=variables, **files)

    def _await_victim(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not (here := [event for event in events_in(self._marks) if event["event"] == "here"]):
            if time.monotonic() > deadline or self.running.entered.poll() is not None:
                raise AssertionError(f"the victim does not come: {self._said()}")
            time.sleep(_RETRY_S)
        found = self.network[2].processes()
        self.victim_pid = next(pid for pid in found if _inner_pid(pid) == here[0]["pid"])

    def _follow(self, story: Story) -> None:
        """Until all is over, or too late."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            over = self.running.entered.poll() is not None
            story.launcher_s = story.launcher_s or (time.monotonic() if over else 0.0)
            ranks = self._ranks()
            if ranks:
                story.ended_s = time.monotonic()
            if over and not ranks:
                break
            time.sleep(_RETRY_S)
        story.ended_s = max(story.ended_s, story.applied_s)

    def _ranks(self) -> list[int]:
        """Those that live, on all hosts."""
        found = [each for host in self.network.hosts for each in host.processes().items()]
        return [pid for pid, text in found if RANKS.name in text and "horovod.runner" not in text]

    def _collect(self, story: Story, sockets: dict[str, list[str]]) -> None:
        story.code = self.running.entered.wait(1.0)
        story.said, story.events = self._said(), events_in(self._marks)
        try:
            self._hosts.is_clean()
        except AssertionError as error:
            story.left.append(str(error)[:300])
        for host in self.network.hosts:
            story.left += [f"{host.name}: {name}" for name in host.sockets() if name not in sockets[host.name]]

    def _said(self) -> str:
        return (self._marks / "stderr").read_text(errors="replace")

    def _kill(self) -> None:
        if self.running.entered.poll() is None:
            with contextlib.suppress(ProcessLookupError, RuntimeError, OSError):
                self.running.signal(signal.SIGKILL)
            self.running.entered.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.running.entered.wait(10.0)


def _inner_pid(pid: int) -> int:
    """What a process of a host calls itself."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next(int(line.split()[-1]) for line in lines if line.startswith("NSpid:"))


def broken(story: Story, fault_name: str, phase: str) -> list[str]:
    """The promises that were not kept, in words; empty when all is well."""
    fault = fault_of(fault_name, phase)
    complaints = [f"left: {name}" for name in story.left]
    by_kind = {kind: [event for event in story.events if event["event"] == kind] for kind in ("raised", "finished")}
    if story.seconds > fault.within_s:
        complaints.append(f"it took {story.seconds:.1f} s until every rank had ended")
    if fault.well:
        if len(by_kind["finished"]) != _SIZE:
            complaints.append(f"only {len(by_kind['finished'])} ranks came to a good end")
        if story.code != 0:
            complaints.append(f"the launcher's exit code is {story.code}")
    elif story.code not in fault.code:
        complaints.append(f"the launcher's exit code is {story.code}")
    if not fault.well and fault.culprit:
        # The launcher may end ranks that wait for a silent host before they have believed it.
        may_be_ended = phase == "shutdown" or "nothing was heard from it for" in story.said
        complaints += _of_errors(by_kind["raised"], fault.culprit, () if may_be_ended else _ELSEWHERE)
    complaints += [f"the launcher does not say {text!r}" for text in fault.told if text not in story.said]
    return complaints


def _of_errors(raised: list[dict[str, Any]], culprit: tuple[str, ...], ranks: tuple[int, ...]) -> list[str]:
    told = {event["rank"] for event in raised}
    return [f"rank {rank} raised nothing" for rank in ranks if rank not in told] + [
        f"rank {event['rank']} raised {event['error']}: {event['message'][:300]}"
        for event in raised
        if not any(name in event["message"] for name in culprit)
    ]
