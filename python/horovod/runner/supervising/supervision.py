"""Follows the ranks of a job from their start to their end: output, signals, the first failure, the clean-up.

Used by `launchers`. One loop over descriptors, which sleeps when nothing happens. It decides that a rank or a host is
lost; `stopping` says when the others get which signal, `progress` what is shown, `report` whose fault it was.
"""

from __future__ import annotations

import collections
import fcntl
import logging
import os
import select
import signal
import sys
import termios
import time
from collections.abc import Mapping
from typing import Callable, Final, Optional

from horovod.runner.display.line_style import moves_cursor
from horovod.runner.display.output import Outlet, RankStream, outlets
from horovod.runner.hangs.hang import HangDesk
from horovod.runner.hangs.hang_watch import hang_watch
from horovod.runner.job import Job
from horovod.runner.launchers.base import Outcome, Surroundings
from horovod.runner.live.figures import Reading
from horovod.runner.live.table import rows
from horovod.runner.machines.limits import reason_of
from horovod.runner.processes.command import why_not_executed
from horovod.runner.processes.crew import (
    Arrivals,
    Change,
    Crew,
    Done,
    Event,
    Exited,
    Finished,
    GivenUp,
    HostLost,
    Joined,
    Output,
    Refused,
    Renumbered,
    Said,
    Started,
    Survived,
)
from horovod.runner.processes.strays import sentence_on_strays
from horovod.runner.processes.streams import Source, Stream
from horovod.runner.supervising.progress import StartProgress
from horovod.runner.supervising.report import Exit
from horovod.runner.supervising.stopping import Escalation, after_end, after_failure, after_silence, at_once, on_signal

_log: Final = logging.getLogger("horovod.runner")
_READ_BYTES: Final = 1 << 16
_TICK_S: Final = 0.2  # only while some, but not all ranks are up
_SETTLING_S: Final = 0.2  # for a terminal to take what is queued, before the shell has it
_LAST_OUTPUT_S: Final = 1.0  # pipes that somebody outside the job still holds open are given up after that
_LINES_OF_A_PAGE: Final = 20  # what was shown so few lines ago is not repeated


class Supervision:
    """See the head of the file.

    Args:
        job: what runs.
        crew: the ranks, being started.
        streams: by the read end of each rank's pipe; those that the crew's events bring by rank and name.
        arrivals: where ranks report that they are up.
        surroundings: of the launcher.
        hang: where the ranks' dumps come together.
    """

    def __init__(
        self,
        job: Job,
        crew: Crew,
        streams: Mapping[Source, Stream],
        arrivals: Arrivals,
        surroundings: Surroundings,
        hang: Optional[HangDesk] = None,
    ) -> None:
        self._job = job
        self._crew = crew
        self._streams = dict(streams)
        self._surroundings = surroundings
        self._caller = surroundings.caller
        self._hang = hang
        self._watch = hang_watch(job, time.monotonic())
        self._stands_still = False  # and ends once the dumps are there
        typing, moves = job.settings.stdin_rank is not None, moves_cursor(job.environ)
        self._outlets = outlets(surroundings.stdout, surroundings.stderr, typing, moves)
        self._tails = _tails(streams)
        self._numbers: dict[int, int] = {}  # by which the user knows ranks, where they were started under others
        self._started_s = time.monotonic()
        self._pids: dict[int, int] = {}
        self._left = set(range(job.size))
        self._exited: list[tuple[Exited, bool]] = []
        self._signalled: set[int] = set()
        self._signals: list[int] = []
        self._escalation: Optional[Escalation] = None
        self._after_silence = False
        self._complaint = ("", 1)
        self._warned: set[str] = set()
        self._more = bool(job.settings.elastic)  # ranks may come, though none is left
        self._done = False
        self._nobody_met = False
        self._strays = 0
        self._shown_lines = 0
        self._last_words: dict[int, int] = {}  # of a rank: at which line of all they were shown
        self._arrivals = arrivals
        self._live = surroundings.live
        self._readings: Mapping[int, Reading] = {}
        on_tty = self._outlets["stderr"].on_tty
        # In an elastic job the crew waits for ranks, and replaces those that hang.
        patience_s = None if job.settings.elastic else job.settings.start_timeout_s
        self._progress = StartProgress(job.size, patience_s, on_tty, self._started_s, self._caller)

    def run(self) -> Outcome:
        """Returns when every process of the job is gone."""
        try:
            self._until(lambda: not self._left and (not self._more or self._escalation is not None))
            self._nobody_met = self._job.size > 1 and self._arrivals.nobody()
            self._strays = self._arrivals.strays()
            self._arrivals.close()
            self._readings = self._crew.figures()
            self._crew.finish()
            self._until(lambda: False)
            deadline_s = time.monotonic() + _LAST_OUTPUT_S
            while any(isinstance(source, int) for source in self._streams) and time.monotonic() < deadline_s:
                self._turn(deadline_s - time.monotonic())
        finally:
            self._close()
        return self._outcome()

    def _until(self, over: Callable[[], bool]) -> None:
        while not self._done and not over():
            self._turn(self._timeout_s())
            self._watch_start()
            self._watch_hang()
            self._escalate()

    @property
    def _starting(self) -> bool:
        """Ranks that have not come up are waited for."""
        return not (self._progress.done or self._escalation or not self._left)

    def _timeout_s(self) -> Optional[float]:
        waits = []
        due_s = self._escalation.next_s() if self._escalation else None
        if due_s is not None:
            waits.append(max(0.0, due_s - time.monotonic()))
        if self._starting and (self._progress.partly or self._arrivals.fd < 0):
            waits.append(_TICK_S)
        watched_s = self._watch.next_s() if self._watch else None
        for next_s in (self._hang.next_s() if self._hang else None, self._crew.next_s(), watched_s):
            if next_s is not None:
                waits.append(max(0.0, next_s - time.monotonic()))
        return min(waits) if waits else None

    def _turn(self, timeout_s: Optional[float]) -> None:
        poller = select.poll()
        if not self._done:
            poller.register(self._crew.fileno(), select.POLLIN)
        live_fd, hang_fd = (each.fd if each else -1 for each in (self._live, self._hang))
        for fd in (self._surroundings.signal_fd, self._arrivals.fd, hang_fd, live_fd):
            if fd >= 0:
                poller.register(fd, select.POLLIN)
        for source, stream in self._streams.items():
            if isinstance(source, int) and (stream.name not in self._outlets or not self._outlets[stream.name].full):
                poller.register(source, select.POLLIN)
        if not any(outlet.full for outlet in self._outlets.values()):
            self._crew.taken()
        for outlet in self._outlets.values():
            if outlet.waiting and outlet.fd is not None:
                poller.register(outlet.fd, select.POLLOUT)
        ready = [fd for fd, _ in poller.poll(None if timeout_s is None else int(timeout_s * 1000) + 1)]
        if not self._done and (due_s := self._crew.next_s()) is not None and due_s <= time.monotonic():
            ready = list(dict.fromkeys([*ready, self._crew.fileno()]))
        for fd in ready:
            self._serve(fd)

    def _serve(self, fd: int) -> None:
        if fd in self._streams:
            self._feed(fd, os.read(fd, _READ_BYTES))
        elif fd == self._crew.fileno():
            for event in self._crew.events():
                self._on_event(event)
        elif self._hang and fd == self._hang.fd:
            self._hang.read(time.monotonic())
        elif self._live and fd == self._live.fd:
            self._live.serve(self._crew.figures, self._left)
        elif fd == self._surroundings.signal_fd:
            self._take_signals(self._surroundings.take_signals())
        else:
            for outlet in set(self._outlets.values()):
                if outlet.fd == fd:
                    self._write(outlet)

    def _feed(self, source: Source, data: bytes) -> None:
        """The next bytes of a stream; none: it has ended."""
        if data:
            if self._watch:
                self._watch.heard(self._streams[source].rank, self._streams[source].name, data)
            self._show(self._streams[source], self._streams[source].feed(data))
        else:
            self._end_stream(source)

    def _read_rest(self, fd: int) -> None:
        """Reads what lies in the pipe now, and no more: a process outside the job may hold it open for ever."""
        count = int.from_bytes(fcntl.ioctl(fd, termios.FIONREAD, bytes(4)), sys.byteorder)
        if count:
            self._show(self._streams[fd], self._streams[fd].feed(os.read(fd, count)))
        self._end_stream(fd)

    def _end_stream(self, source: Source) -> None:
        stream = self._streams.pop(source)
        if isinstance(source, int):
            os.close(source)
        self._show(stream, stream.finish())

    def _show(self, stream: Stream, text: bytes) -> None:
        if text:
            self._shown_lines += text.count(b"\n")
            if stream.name == "stderr":
                self._last_words[stream.rank] = self._shown_lines
            self._outlets["stderr"].put(self._progress.clear().encode())
            self._outlets[stream.name].put(text, (stream.rank, stream.name))
        if stream.problem:
            self._warn("files", stream.problem, self._outlets["stderr"])

    def _write(self, outlet: Outlet) -> None:
        outlet.write_some()
        if outlet.problem:
            other = self._outlets["stdout" if outlet is self._outlets["stderr"] else "stderr"]
            self._warn(outlet.problem, outlet.problem, other)

    def _warn(self, subject: str, text: str, outlet: Outlet) -> None:
        """Says it once for each subject."""
        if subject not in self._warned:
            self._warned.add(subject)
            outlet.put(_bytes(f"{self._caller}: warning: {text}\n"))

    def _on_event(self, event: Event) -> None:
        if isinstance(event, Started):
            self._pids[event.rank] = event.pid
            _log.info("rank %d started with pid %d%s", event.rank, event.pid, self._job.on_host(event.rank))
        elif isinstance(event, Exited):
            stopped = event.rank in self._signalled
            self._exited.append((event, stopped))
            self._left.discard(event.rank)
            if event.status != 0 and not stopped and (self._escalation is None or self._after_silence):
                self._escalation, self._after_silence = after_failure(time.monotonic()), False
        elif isinstance(event, Refused):
            self._left.discard(event.rank)
            self._give_up(f"rank {event.rank}: {_refusal(event, self._job)}.", 126 if event.forked else 1)
            self._escalation = at_once(time.monotonic())
        elif isinstance(event, Output):
            if (event.rank, event.stream) in self._streams:
                self._feed((event.rank, event.stream), event.data)
        elif isinstance(event, HostLost):
            self._left.difference_update(event.ranks)
            if event.silent and not self._complaint[0]:  # at once: the end may take its time
                self._say(f"{self._caller}: {event.why.rstrip('.')}; the job ends.\n")
            self._after_silence = event.silent and self._escalation is None
            end = after_silence if event.silent else after_failure
            self._give_up(event.why, 1, end(time.monotonic()))
        elif isinstance(event, Done):
            self._done = True
            if event.lost:
                self._give_up("the process that keeps the ranks has died, so all ranks were stopped.", 1)
        else:
            self._on_change(event)

    def _on_change(self, event: Change) -> None:
        """Of a job whose ranks change."""
        if isinstance(event, Joined):
            self._left.add(event.rank)
            self._streams.update(event.streams)
            self._tails.update(_tails(event.streams))
        elif isinstance(event, Survived):
            self._left.discard(event.rank)
        elif isinstance(event, Renumbered):
            self._numbers.update(event.numbers)
        elif isinstance(event, Finished):
            self._more = False
            self._escalation = self._escalation or after_end(self._job.settings.start_timeout_s, time.monotonic())
        elif isinstance(event, Said):
            self._say(f"{self._caller}: {event.text}\n")
        elif isinstance(event, GivenUp):
            self._give_up(event.why, 1, after_failure(time.monotonic()))

    def _give_up(self, complaint: str, code: int, escalation: Optional[Escalation] = None) -> None:
        if not self._complaint[0]:
            self._complaint = (complaint, code)
        self._escalation = self._escalation or escalation

    def _take_signals(self, numbers: list[int]) -> None:
        if self._surroundings.dump_signal in numbers:
            if self._hang:
                self._hang.ask(time.monotonic())
            else:
                self._say(f"{self._caller}: dumps are collected only where horovodrun starts several ranks itself.\n")
        if signal.SIGTSTP in numbers:
            self._stand_still()
        numbers = [number for number in numbers if number not in (signal.SIGTSTP, self._surroundings.dump_signal)]
        if not numbers:
            return
        self._signals += numbers
        self._escalation = on_signal(numbers[-1], len(self._signals), time.monotonic())

    def _stand_still(self) -> None:
        """Ctrl-Z: as the shell expects, but the ranks go on, wherever they are."""
        for outlet in self._outlets.values():
            outlet.settle(_SETTLING_S)
        self._crew.pause()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._crew.resume()

    def _escalate(self) -> None:
        number = self._escalation.due(time.monotonic()) if self._escalation else None
        if number is not None and self._left:
            self._signalled |= self._left
            self._crew.signal(self._left, number)

    def _watch_hang(self) -> None:
        """Ends a job all of whose ranks stand still, after their stacks have been collected."""
        now_s = time.monotonic()
        if self._hang and (text := self._hang.report(self._left, now_s)):
            self._say(text)
        if self._stands_still and not (self._hang and self._hang.next_s() is not None):
            self._stands_still = False
            self._escalation = self._escalation or on_signal(signal.SIGTERM, 1, now_s)
        if self._watch is None or not self._watch.due(now_s):
            return
        why = self._watch.why_to_end(self._crew.vitals(), self._left, now_s, self._arrivals.nobody())
        if why and self._escalation is None:
            self._watch, self._stands_still = None, True
            self._give_up(why, 1)
            if self._hang:
                self._hang.ask(now_s)

    def _say(self, text: str) -> None:
        self._outlets["stderr"].put(_bytes(f"{self._progress.clear()}{text}"))

    def _watch_start(self) -> None:
        if self._escalation:
            self._arrivals.close()  # what nobody reads any more would keep the loop awake
        if not self._starting:
            return
        now_s = time.monotonic()
        text = self._progress.see(self._arrivals.ranks(), self._arrivals.over, now_s)
        self._outlets["stderr"].put(text.encode())
        if self._progress.done:
            self._arrivals.close()
        elif self._progress.overdue(now_s):
            self._give_up(self._progress.complaint() + sentence_on_strays(self._arrivals.strays()), 1)
            self._escalation = on_signal(signal.SIGTERM, 1, now_s)

    def _close(self) -> None:
        self._crew.close()
        self._arrivals.close()
        for source in list(self._streams):
            if isinstance(source, int):
                self._read_rest(source)
            else:
                self._end_stream(source)
        self._say(self._hang.close(self._left, bool(self._outcome().exit_code)) if self._hang else "")
        for outlet in self._outlets.values():
            outlet.finish_line()
        self._drain()
        for outlet in self._outlets.values():
            outlet.close()

    def _drain(self) -> None:
        """Writes what is left, however slow the reader is. A second signal ends the wait for one that never reads."""
        while len(self._signals) < 2:
            waiting = {
                outlet.fd: outlet for outlet in self._outlets.values() if outlet.waiting and outlet.fd is not None
            }
            if not waiting:
                return
            poller = select.poll()
            if self._surroundings.signal_fd >= 0:
                poller.register(self._surroundings.signal_fd, select.POLLIN)
            for fd in waiting:
                poller.register(fd, select.POLLOUT)
            for fd, _ in poller.poll():
                if fd in waiting:
                    self._write(waiting[fd])
            self._take_signals(self._surroundings.take_signals())
        for outlet in self._outlets.values():
            outlet.give_up()

    def _outcome(self) -> Outcome:
        exits = tuple(
            Exit(
                rank=self._numbers.get(event.rank, event.rank),
                hostname=self._job.host_of(event.rank),
                pid=self._pids.get(event.rank, 0),
                status=event.status,
                at_s=event.at_s,
                started_s=self._started_s,
                stopped_by_us=stopped,
                peak_bytes=event.peak_bytes,
                tail=tuple(self._tails.get(event.rank, ())),
            )
            for event, stopped in self._exited
        )
        hosts = {number: self._job.host_of(number) for number in self._readings}
        spent = tuple(rows(self._readings, {}, hosts, elastic=self._job.settings.elastic))
        interrupted = self._signals[0] if self._signals else 0
        just_read = frozenset(
            rank for rank, line in self._last_words.items() if self._shown_lines - line <= _LINES_OF_A_PAGE
        )
        return Outcome(
            exits, interrupted, *self._complaint, self._nobody_met, just_read, strays=self._strays, rows=spent
        )


def _bytes(text: str) -> bytes:
    """Of words of the launcher's own: a name of a file in them need not be UTF-8."""
    return text.encode("utf-8", "backslashreplace")


def _tails(streams: Mapping[Source, Stream]) -> dict[int, collections.deque[bytes]]:
    """The last lines of each rank's stderr, as they come."""
    return {
        stream.rank: stream.tail
        for stream in streams.values()
        if isinstance(stream, RankStream) and stream.name == "stderr"
    }


def _refusal(event: Refused, job: Job) -> str:
    reason = reason_of(event.error)
    if not event.forked:
        return f"it cannot be started: {reason}"
    why = why_not_executed(job.command[0], job.environ.get("PATH"), job.cwd, event.error)
    return f"{job.command[0]!r} cannot be executed: {reason}{why and ': '}{why}"
