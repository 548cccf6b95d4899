"""The launcher's hand on one host: `python -m horovod.runner.remote.agent`, started over ssh.

It gets the job over its standard input, starts the ranks of its host by a keeper (`process`), and says over its
standard output what they write and how they end. It decides nothing. When its input ends, or nothing is heard from the
launcher for some seconds, which has not said that it pauses, the launcher is gone and it kills everything; when it is
killed itself, the keeper does.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import signal
import socket
import sys
import termios
import time
from typing import Any, Final, Optional

import horovod
from horovod._core.errors import HorovodError
from horovod._net.failures import ProtocolError
from horovod._net.identity import host_identity
from horovod.runner import standard_streams
from horovod.runner.crew import Done, Event, Exited, Refused, Started
from horovod.runner.process import RankProcesses
from horovod.runner.remote import addresses, frames, messages, orphans
from horovod.runner.remote.board import Board
from horovod.runner.remote.channel import Channel
from horovod.runner.remote.loop import Loop
from horovod.runner.remote.workplace import Workplace

WINDOW_BYTES: Final = 1 << 18  # of output that the launcher has not taken yet
_LAST_OUTPUT_S: Final = 1.0  # pipes that somebody outside the job still holds open are given up after that
_LAST_WORD_S: Final = 5.0
_BUSY_BYTES: Final = 1 << 20  # queued for the launcher: then no rank may post more
LOST: Final = 3  # exit code when the launcher is gone


class Agent:
    """See the head of the file.

    Args:
        read_fd, write_fd: to the launcher.
    """

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._loop = Loop()
        self._function: Optional[bytearray] = None
        self._job: Optional[dict[str, Any]] = None
        self._work: Optional[Workplace] = None
        self._board: Optional[Board] = None
        self._processes: Optional[RankProcesses] = None
        self._rank_of_group: dict[int, int] = {}
        self._group_of_visitor: dict[int, int] = {}  # of processes that have come to the board
        self._heard = False
        self._credit_bytes = WINDOW_BYTES
        self._held = False
        self._last_output_s: Optional[float] = None
        self._lost_keeper = False
        self._code: Optional[int] = None
        os.write(write_fd, frames.MARK)
        self._channel = Channel(self._loop, (read_fd, write_fd), frames.FROM_LAUNCHER, self._on_frame, self._on_end)
        self._loop.tick(self._tick)
        self._send_hello()

    def run(self) -> int:
        """Returns the exit code when the job is over."""
        while self._code is None:
            left_s = None if self._last_output_s is None else max(0.0, self._last_output_s - time.monotonic())
            self._loop.turn(left_s)
            if left_s == 0.0:
                self._read_rests()
            if self._last_output_s is not None and not (self._work and self._work.pipes):
                self._say_done()
        return self._code

    def close(self) -> None:
        """Ends every process of the job and removes what was made for it."""
        if self._processes is not None:
            self._processes.close()
        if self._board is not None:
            self._board.close()
        if self._work is not None:
            self._work.close()
        self._channel.close()
        self._loop.close()

    def _on_end(self, reason: str) -> None:
        if self._job is None and not self._heard:
            reason = "its standard input has ended: what starts it does not pass the launcher's on"
        with contextlib.suppress(OSError):  # who would read it is gone
            sys.stderr.write(f"The agent ends its ranks: {reason or 'the launcher is gone'}.\n")
            sys.stderr.flush()
        self._code = LOST

    def _say(self, message: str, **fields: Any) -> None:
        self._channel.send(frames.frame(frames.CONTROL, messages.encode(message, **fields)))
        self._hold()

    def _send_hello(self) -> None:
        name = socket.gethostname()
        body = messages.encode(
            "hello",
            protocol=frames.PROTOCOL,
            version=horovod.__version__,
            name=name,
            ssh=os.environ.get("SSH_CONNECTION", "")[:1000],
            own=addresses.of_name(name),
            machine=_machine(name),
        )
        self._channel.send(frames.frame(frames.HELLO, body))

    def _tick(self) -> None:
        self._channel.tick()
        self._hold()

    def _hold(self) -> None:
        """When the way to the launcher is full, ranks that post wait."""
        held = self._channel.queued_bytes > _BUSY_BYTES
        if held != self._held and self._board is not None:
            self._held = held
            self._board.hold(held)

    def _on_frame(self, kind: int, body: bytes) -> None:
        self._heard = True
        if kind == frames.CONTROL:
            name, fields = messages.decode(body, messages.FROM_LAUNCHER)
            getattr(self, f"_on_{name}")(**fields)
        elif kind == frames.FUNCTION:
            if self._job is None or self._function is None:
                raise ProtocolError("A function comes behind a job that has one.")
            if body:
                self._function += body
            else:
                self._prepare()
        elif kind == frames.POST and self._board is not None:
            self._board.stand(body.decode("utf-8", "replace"))

    def _on_job(self, **job: Any) -> None:
        if self._job is not None:
            raise ProtocolError("There is a job already.")
        self._job = job
        if job["function"]:
            self._function = bytearray()
        else:
            self._prepare()

    def _prepare(self) -> None:
        job = self._job or {}
        try:
            self._work = Workplace(job, None if self._function is None else bytes(self._function))
            self._function = None
            count = len(job["ranks"])
            self._board = Board(self._loop, self._work.directory.lock_fd, count, self._forward, self._seen)
        except (HorovodError, OSError) as error:
            self._say("refused", why=str(error)[: 1 << 13])
        else:
            self._say("ready")

    def _on_go(self) -> None:
        if self._work is None or self._board is None or self._processes is not None:
            raise ProtocolError("There is nothing to start.")
        try:
            self._processes = self._work.start()
        except OSError as error:
            self._say("refused", why=str(error)[: 1 << 13])
            return
        self._loop.watch(self._processes.fileno(), self._on_events)
        self._read_pipes()

    def _on_signal(self, number: int, ranks: list[int]) -> None:
        if self._processes is not None:
            self._processes.signal(ranks, number)

    def _on_finish(self) -> None:
        if self._processes is not None:
            self._processes.finish()
        else:
            self._say_done()

    def _on_silence(self, expected: bool) -> None:
        self._channel.patient = expected

    def _on_credit(self, bytes: int) -> None:
        self._credit_bytes = min(WINDOW_BYTES, self._credit_bytes + bytes)
        self._read_pipes()

    def _on_events(self) -> None:
        if self._processes is not None:
            for event in self._processes.events():
                self._on_event(event)

    def _on_event(self, event: Event) -> None:
        if isinstance(event, Started):
            self._rank_of_group[event.pid] = event.rank
            self._say("started", rank=event.rank, pid=event.pid)
            if event.pid in self._group_of_visitor.values():
                self._say("up", rank=event.rank)
        elif isinstance(event, Refused):
            self._say("failed", rank=event.rank, errno=event.error, forked=event.forked)
        elif isinstance(event, Exited):
            # Clocks of hosts differ; how long ago it was does not.
            age_s = max(0.0, time.monotonic() - event.at_s)
            self._say("exited", rank=event.rank, status=event.status, age=age_s, how=event.how)
        elif isinstance(event, Done) and self._processes is not None:
            self._loop.watch(self._processes.fileno(), None)
            self._lost_keeper = event.lost
            if event.lost:
                orphans.kill_all()
            self._last_output_s = time.monotonic() + _LAST_OUTPUT_S

    def _say_done(self) -> None:
        self._last_output_s = None
        self._say("done", lost=self._lost_keeper)
        self._loop.until(lambda: not self._channel.waiting or not self._channel.open, time.monotonic() + _LAST_WORD_S)
        self._code = 0

    def _read_pipes(self) -> None:
        """Reads what ranks write for as long as the launcher takes it."""
        for fd in list(self._work.pipes) if self._work is not None else ():
            self._loop.watch(fd, functools.partial(self._read, fd) if self._credit_bytes > 0 else None)

    def _read(self, fd: int) -> None:
        if self._work is None or fd not in self._work.pipes or self._credit_bytes <= 0:
            return
        data = os.read(fd, frames.MAX_OUTPUT_BYTES)
        self._pass_on(fd, data)
        if self._credit_bytes <= 0:
            self._read_pipes()

    def _read_rests(self) -> None:
        """What lies in the pipes now, and no more: whoever holds them open outside the job may write for ever."""
        for fd in list(self._work.pipes) if self._work is not None else ():
            count = int.from_bytes(fcntl.ioctl(fd, termios.FIONREAD, bytes(4)), sys.byteorder)
            while count > 0:
                data = os.read(fd, min(count, frames.MAX_OUTPUT_BYTES))
                self._pass_on(fd, data)
                count -= len(data)
            self._pass_on(fd, b"")

    def _pass_on(self, fd: int, data: bytes) -> None:
        if self._work is None:
            return
        rank, stream = self._work.pipes[fd]
        self._channel.send(frames.output_frame(rank, stream, data))
        self._credit_bytes -= len(data)
        if not data:
            self._loop.watch(fd, None)
            del self._work.pipes[fd]
            os.close(fd)

    def _forward(self, text: str) -> None:
        self._channel.send(frames.frame(frames.POST, text.encode()))
        self._hold()

    def _seen(self, pid: int, come: bool) -> None:
        """A process has come to the board, or left it: that tells which ranks are up."""
        if come:
            with contextlib.suppress(OSError):  # it has ended already
                # A rank's process group has the number of its first process, which may be a shell around the program.
                self._group_of_visitor[pid] = os.getpgid(pid)
        rank = self._rank_of_group.get(self._group_of_visitor.get(pid, 0))
        if rank is not None:
            self._say("up" if come else "over", rank=rank)


def _machine(name: str) -> str:
    """What no other host of the job says of itself: a machine that goes by two names says it twice."""
    spaces = [host_identity().boot_id, name]
    for space in ("ipc", "net", "mnt"):
        with contextlib.suppress(OSError):
            spaces.append(os.readlink(f"/proc/self/ns/{space}"))
    return " ".join(spaces)


def _private_streams() -> tuple[int, int]:
    """The standard streams, moved away: a stray print goes to stderr, and no child inherits the way to the launcher."""
    standard_streams.fill()
    read_fd, write_fd = os.dup(0), os.dup(1)
    null_fd = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null_fd, 0)
    os.close(null_fd)
    os.dup2(2, 1)
    return read_fd, write_fd


def main() -> int:
    """Runs an agent to its end; returns its exit code."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    orphans.adopt()
    read_fd, write_fd = _private_streams()
    try:
        agent = Agent(read_fd, write_fd)
    except PermissionError:
        sys.stderr.write("The agent's standard input is a file: what starts it does not pass the launcher's on.\n")
        return 1
    try:
        return agent.run()
    finally:
        agent.close()


if __name__ == "__main__":
    sys.exit(main())
