"""Follows the ranks of a job from their start to their end: output, signals, the first failure, the clean-up.

Used by `launchers.local`. One loop over descriptors, which sleeps when nothing happens; the decisions are in `report`,
`stopping` and `progress`.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Callable, Final, Optional

from horovod.runner.arrivals import Arrivals
from horovod.runner.job import Job
from horovod.runner.launchers.base import Outcome, Surroundings
from horovod.runner.output import RankStream, outlets
from horovod.runner.process import Done, Event, Exited, RankProcesses, Refused, Started
from horovod.runner.progress import StartProgress
from horovod.runner.report import Exit
from horovod.runner.stopping import Escalation, after_failure, at_once, on_signal

_READ_BYTES: Final = 1 << 16
_TICK_S: Final = 0.2  # only while some, but not all ranks are up
_LAST_OUTPUT_S: Final = 1.0  # pipes that somebody outside the job still holds open are given up after that


class Supervision:
    """See the head of the file.

    Args:
        job: what runs.
        processes: the ranks, being started.
        streams: by the read end of each rank's pipe.
        directory: the job's directory, where ranks report that they are up.
        surroundings: of the launcher.
    """

    def __init__(
        self,
        job: Job,
        processes: RankProcesses,
        streams: Mapping[int, RankStream],
        directory: Path,
        surroundings: Surroundings,
    ) -> None:
        self._job = job
        self._processes = processes
        self._streams = dict(streams)
        self._surroundings = surroundings
        self._directory = directory
        self._outlets = outlets(surroundings.stdout, surroundings.stderr)
        self._tails = {stream.rank: stream.tail for stream in streams.values() if stream.name == "stderr"}
        self._started_s = time.monotonic()
        self._pids: dict[int, int] = {}
        self._left = set(range(job.size))
        self._exited: list[tuple[Exited, bool]] = []
        self._signalled: set[int] = set()
        self._signals: list[int] = []
        self._escalation: Optional[Escalation] = None
        self._complaint = ("", 1)
        self._done = False
        self._arrivals = Arrivals(directory)
        tty = surroundings.stderr.isatty()
        self._progress = StartProgress(job.size, job.settings.start_timeout_s, tty, self._started_s)

    def run(self) -> Outcome:
        """Returns when every process of the job is gone."""
        try:
            self._until(lambda: not self._left)
            if self._surroundings.collect and not self._done:
                self._surroundings.collect(self._directory)
            self._processes.finish()
            self._until(lambda: False)
            deadline_s = time.monotonic() + _LAST_OUTPUT_S
            while self._streams and time.monotonic() < deadline_s:
                self._turn(deadline_s - time.monotonic())
        finally:
            self._close()
        return self._outcome()

    def _until(self, over: Callable[[], bool]) -> None:
        while not self._done and not over():
            self._turn(self._timeout_s())
            self._watch_start()
            self._escalate()

    def _timeout_s(self) -> Optional[float]:
        waits = []
        due_s = self._escalation.next_s() if self._escalation else None
        if due_s is not None:
            waits.append(max(0.0, due_s - time.monotonic()))
        if self._progress.partly or (self._arrivals.fd < 0 and not self._progress.done):
            waits.append(_TICK_S)
        return min(waits) if waits else None

    def _turn(self, timeout_s: Optional[float]) -> None:
        poller = select.poll()
        if not self._done:
            poller.register(self._processes.fileno(), select.POLLIN)
        for fd in (self._surroundings.signal_fd, self._arrivals.fd):
            if fd >= 0:
                poller.register(fd, select.POLLIN)
        for fd, stream in self._streams.items():
            if not self._outlets[stream.name].full:
                poller.register(fd, select.POLLIN)
        for outlet in self._outlets.values():
            if outlet.waiting and outlet.fd is not None:
                poller.register(outlet.fd, select.POLLOUT)
        for fd, _ in poller.poll(None if timeout_s is None else int(timeout_s * 1000) + 1):
            self._serve(fd)

    def _serve(self, fd: int) -> None:
        if fd in self._streams:
            self._read(fd)
        elif fd == self._processes.fileno():
            for event in self._processes.events():
                self._on_event(event)
        elif fd == self._surroundings.signal_fd:
            self._take_signals(self._surroundings.take_signals())
        else:
            for outlet in set(self._outlets.values()):
                if outlet.fd == fd:
                    outlet.write_some()

    def _read(self, fd: int) -> None:
        stream = self._streams[fd]
        data = os.read(fd, _READ_BYTES)
        if data:
            text = stream.feed(data)
        else:
            text = stream.finish()
            os.close(fd)
            del self._streams[fd]
        if text:
            self._outlets["stderr"].put(self._progress.clear().encode())
            self._outlets[stream.name].put(text)

    def _on_event(self, event: Event) -> None:
        if isinstance(event, Started):
            self._pids[event.rank] = event.pid
        elif isinstance(event, Exited):
            stopped = event.rank in self._signalled
            self._exited.append((event, stopped))
            self._left.discard(event.rank)
            if event.status != 0 and not stopped and self._escalation is None:
                self._escalation = after_failure(time.monotonic())
        elif isinstance(event, Refused):
            self._left.discard(event.rank)
            reason = os.strerror(event.error)
            self._give_up(f"rank {event.rank}: {self._job.command[0]!r} cannot be executed: {reason}.", 126)
            self._escalation = at_once(time.monotonic())
        elif isinstance(event, Done):
            self._done = True
            if event.lost:
                self._give_up("the process that keeps the ranks has died, so all ranks were stopped.", 1)

    def _give_up(self, complaint: str, code: int) -> None:
        if not self._complaint[0]:
            self._complaint = (complaint, code)

    def _take_signals(self, numbers: list[int]) -> None:
        if not numbers:
            return
        self._signals += numbers
        self._escalation = on_signal(numbers[-1], len(self._signals), time.monotonic())

    def _escalate(self) -> None:
        number = self._escalation.due(time.monotonic()) if self._escalation else None
        if number is not None and self._left:
            self._signalled |= self._left
            self._processes.signal(self._left, number)

    def _watch_start(self) -> None:
        if self._progress.done or self._escalation or not self._left:
            return
        now_s = time.monotonic()
        text = self._progress.see(self._arrivals.ranks(), self._arrivals.over, now_s)
        self._outlets["stderr"].put(text.encode())
        if self._progress.done:
            self._arrivals.close()
        elif self._progress.overdue(now_s):
            self._give_up(self._progress.complaint(), 1)
            self._escalation = on_signal(signal.SIGTERM, 1, now_s)

    def _close(self) -> None:
        self._processes.close()
        self._arrivals.close()
        for fd, stream in self._streams.items():
            self._outlets[stream.name].put(stream.finish())
            os.close(fd)
        self._streams.clear()
        self._outlets["stderr"].put(self._progress.clear().encode())
        if len(self._signals) < 2:
            for outlet in self._outlets.values():
                outlet.drain()

    def _outcome(self) -> Outcome:
        exits = tuple(
            Exit(
                rank=event.rank,
                hostname=self._job.slots[event.rank].hostname,
                pid=self._pids.get(event.rank, 0),
                status=event.status,
                at_s=event.at_s,
                started_s=self._started_s,
                stopped_by_us=stopped,
                tail=tuple(self._tails[event.rank]),
            )
            for event, stopped in self._exited
        )
        interrupted = self._signals[0] if self._signals else 0
        return Outcome(exits, interrupted, *self._complaint)
