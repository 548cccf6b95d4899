"""The launcher's hand on one host: `python -m horovod.runner.remote.agent LINK_TIMEOUT`, started over ssh or by a
program that has a process there.

It gets the job over its standard input, starts the ranks of its host by a keeper (`process`), and says over its
standard output what they write and how they end. It decides nothing. When its input ends, or the launcher is
silent for some seconds without having announced a pause, the launcher is gone and the agent kills everything. When the
agent itself is killed, or stopped for some seconds, the keeper does.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import socket
import sys
import time
from typing import Any, Callable, Final, Optional

import horovod
from horovod._core.errors import HorovodError
from horovod._net.failures import ProtocolError
from horovod.runner.display import standard_streams
from horovod.runner.elastic.roster_keeper import Heard, RosterKeeper
from horovod.runner.loop import Loop
from horovod.runner.machines import addresses, this_host
from horovod.runner.processes import orphans, vitals
from horovod.runner.processes.crew import Asks, Done, Event, Exited, Refused, Started
from horovod.runner.processes.process import RankProcesses
from horovod.runner.remote.host_side.board import Board
from horovod.runner.remote.host_side.dump_post import DumpPost
from horovod.runner.remote.host_side.figures_post import FiguresPost
from horovod.runner.remote.host_side.outflow import Outflow
from horovod.runner.remote.host_side.workplace import Workplace
from horovod.runner.remote.wire import frames, messages, vigil
from horovod.runner.remote.wire.channel import Channel

_LINK_TIMEOUT_S: Final = 10.0  # under a launcher of another version, which does not say it
_LAST_OUTPUT_S: Final = 1.0  # pipes that somebody outside the job still holds open are given up after that
_LAST_WORD_S: Final = 5.0
_BUSY_BYTES: Final = 1 << 20  # queued for the launcher: then no rank may post more
LOST: Final = 3  # exit code when the launcher is gone


class Agent:
    """See the head of the file.

    Args:
        read_fd, write_fd: to the launcher.
        link_timeout_s: see `vigil`.
    """

    def __init__(self, read_fd: int, write_fd: int, link_timeout_s: float) -> None:
        self._loop = Loop()
        self._function: Optional[bytearray] = None
        self._job: Optional[dict[str, Any]] = None
        self._work: Optional[Workplace] = None
        self._board: Optional[Board] = None
        self._roster: Optional[RosterKeeper] = None  # of an elastic job
        self._processes: Optional[RankProcesses] = None
        self._rank_of_first: dict[int, int] = {}  # of the process that was started
        self._lineage_of_visitor: dict[int, list[int]] = {}  # of processes that have come to the board
        self._heard = False
        self._outflow: Optional[Outflow] = None
        self._dumps: Optional[DumpPost] = None
        self._figures = FiguresPost(self._say)
        self._on_watch = self._figures.watch
        self._held = False
        self._last_output_s: Optional[float] = None
        self._lost_keeper = False
        self._code: Optional[int] = None
        os.write(write_fd, frames.MARK)
        watch = vigil.Vigil(link_timeout_s, time.monotonic(), begun=True)
        fds = (read_fd, write_fd)
        self._channel = Channel(self._loop, fds, frames.FROM_LAUNCHER, self._on_frame, self._on_end, watch)
        self._loop.tick(self._tick)
        self._loop.tick(self._channel.look, vigil.LOOK_S)
        self._send_hello()

    def run(self) -> int:
        """Returns the exit code when the job is over."""
        while self._code is None:
            dues_s = (self._last_output_s, self._dumps.next_s() if self._dumps else None)
            due_s = min((each for each in dues_s if each is not None), default=None)
            self._loop.turn(None if due_s is None else max(0.0, due_s - time.monotonic()))
            if self._dumps is not None:
                self._dumps.look()
            if self._last_output_s is not None and time.monotonic() >= self._last_output_s and self._outflow:
                self._outflow.end()
            if self._last_output_s is not None and not (self._work and self._work.pipes):
                self._say_done()
        return self._code

    def close(self) -> None:
        """Ends every process of the job and removes what was made for it."""
        if self._processes is not None:
            self._processes.close()
        if self._dumps is not None:
            self._dumps.close()
        if self._board is not None:
            self._board.close()
        if self._roster is not None:
            self._roster.close()
        if self._work is not None:
            self._work.close()
        self._channel.close()
        self._loop.close()

    def terminate(self) -> None:
        """On SIGTERM. Before there is a keeper, nobody else would remove what was made here: the loop ends, at the next
        tick at the latest. Afterwards the keeper does it, and sees to it that no rank holds that up."""
        if self._processes is None:
            self._code = 128 + signal.SIGTERM
            return
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)

    def _on_end(self, reason: str) -> None:
        if self._job is None and not self._heard:
            reason = "its standard input has ended: the command that starts it does not forward the launcher's"
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
            machine=this_host.facts(),
        )
        self._channel.send(frames.frame(frames.HELLO, body))

    def _tick(self) -> None:
        self._channel.tick()
        if self._processes is not None:
            self._processes.beat(self._channel.vigil.keepers_s)
        self._figures.tick()
        _tell_strays(self._work, self._say)
        if self._board is not None:
            self._board.socket.look_again()
        if self._roster is not None:
            self._roster.socket.look_again()
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
                raise ProtocolError("A function must follow a job that announces one.")
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
            self._outflow = Outflow(self._loop, self._channel.send, self._work.pipes)
            if job["elastic"]:
                pass_on = functools.partial(_pass_on, self._say)
                self._roster = RosterKeeper(self._loop, self._work.directory.lock_fd, pass_on)
            if job["dumps"]:
                ranks = {member["rank"] for member in job["ranks"]}
                self._dumps = DumpPost(self._loop, self._channel, self._work.collecting(), ranks)
        except (HorovodError, OSError) as error:
            self._say("refused", why=str(error)[: 1 << 13])
        else:
            port = self._channel.pulse(bytes.fromhex(job["link"]["key"]), job["link"]["address"], 0, asks=False)
            self._say("ready", **self._work.sharing(), pulses=port)

    def _on_go(self) -> None:
        if self._work is None or self._board is None or self._processes is not None:
            raise ProtocolError("There is nothing to start.")
        try:
            self._processes = self._work.start()
        except OSError as error:
            self._say("refused", why=str(error)[: 1 << 13])
            return
        self._figures.processes = self._processes
        self._processes.patience_s = self._channel.vigil.busy_s
        self._processes.beat(self._channel.vigil.keepers_s)  # from here on its keeper watches over this process
        self._loop.watch(self._processes.fileno(), self._on_events)
        if self._outflow is not None:
            self._outflow.watch()
        every_s = (self._job or {}).get("vitals_every")
        if every_s:
            self._loop.tick(functools.partial(_tell_vitals, self._processes, self._say), every_s)

    def _on_further(self, rank: int, env: dict[str, str]) -> None:
        if self._work is None or self._board is None or self._processes is None or self._outflow is None:
            raise ProtocolError("More ranks may be started only after the first ones.")
        self._board.expect(1)
        try:
            spec = self._work.spec(rank, env)
        except OSError as error:
            self._say("failed", rank=rank, errno=error.errno or 0, forked=False)
        else:
            self._processes.add(spec)
            self._outflow.watch()

    def _on_roster(self, rank: int, words: dict[str, Any]) -> None:
        if self._roster is not None:
            self._roster.say(rank, words)

    def _on_signal(self, number: int, ranks: list[int]) -> None:
        if self._processes is not None:
            self._processes.signal(ranks, number)

    def _on_finish(self) -> None:
        if self._processes is not None:
            self._processes.finish()
        else:
            self._say_done()

    def _on_silence(self, expected: bool) -> None:
        self._channel.vigil.patient = expected

    def _on_credit(self, bytes: int) -> None:
        if self._outflow is not None:
            self._outflow.credit(bytes)

    def _on_dump(self, round: int) -> None:
        if self._dumps is not None:
            self._dumps.ask(round)

    def _on_events(self) -> None:
        if self._roster is not None:
            self._roster.hear_all()
        _tell_strays(self._work, self._say)
        if self._processes is not None:
            for event in self._processes.events():
                self._on_event(event)

    def _on_event(self, event: Event) -> None:
        if isinstance(event, Started):
            self._rank_of_first[event.pid] = event.rank
            self._say("started", rank=event.rank, pid=event.pid)
            if any(event.pid in lineage for lineage in self._lineage_of_visitor.values()):
                self._say("up", rank=event.rank)
        elif isinstance(event, Refused):
            self._say("failed", rank=event.rank, errno=event.error, forked=event.forked)
        elif isinstance(event, Exited):
            # Clocks of hosts differ; how long ago it was does not.
            self._figures.ended(event.rank)
            age_s = max(0.0, time.monotonic() - event.at_s)
            self._say("exited", rank=event.rank, status=event.status, age=age_s, how=event.how, peak=event.peak_bytes)
            if self._dumps is not None:
                self._dumps.ended(event.rank)
        elif isinstance(event, Done) and self._processes is not None:
            self._loop.watch(self._processes.fileno(), None)
            self._lost_keeper = event.lost
            self._last_output_s = time.monotonic() + _LAST_OUTPUT_S

    def _say_done(self) -> None:
        self._last_output_s = None
        self._say("done", lost=self._lost_keeper)
        self._loop.until(lambda: not self._channel.waiting or not self._channel.open, time.monotonic() + _LAST_WORD_S)
        self._code = 0

    def _forward(self, text: str) -> None:
        self._channel.send(frames.frame(frames.POST, text.encode()))
        self._hold()

    def _seen(self, pid: int, come: bool) -> None:
        """A process has come to the board, or left it: that tells which ranks are up."""
        if come:
            # The rank's first process may be a shell around the program, which may be in a group of its own.
            self._lineage_of_visitor[pid] = vitals.lineage(pid)
        for ancestor in self._lineage_of_visitor.get(pid, ()):
            if ancestor in self._rank_of_first:
                self._say("up" if come else "over", rank=self._rank_of_first[ancestor])
                return


def _pass_on(say: Callable[..., None], heard: Heard) -> None:
    """What a worker of an elastic job says."""
    if isinstance(heard, Asks):
        say("asks", rank=heard.rank, epoch=heard.version[0], commits=heard.version[1], why=heard.why)
    else:
        say("bereft", rank=heard.rank)


def _tell_vitals(processes: RankProcesses, say: Callable[..., None]) -> None:
    """How much the ranks have used: the launcher ends a job all of whose ranks stand still."""
    found = processes.vitals()
    if found:
        say("vitals", ranks=[[rank, *(each or ())] for rank, each in found.items()])


def _tell_strays(work: Optional[Workplace], say: Callable[..., None]) -> None:
    """Processes that came without their variables: when all have ended, the launcher says why none was a rank."""
    if work is not None and (count := work.new_strays()):
        say("strays", count=count)


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
    orphans.wake_at_parents_end()  # before there is a keeper, nobody else would end an agent that somebody has stopped
    read_fd, write_fd = _private_streams()
    try:
        agent = Agent(read_fd, write_fd, float(sys.argv[1]) if sys.argv[1:] else _LINK_TIMEOUT_S)
    except PermissionError:
        sys.stderr.write("The agent's standard input is a file: the command that starts it does not forward it.\n")
        return 1
    signal.signal(signal.SIGTERM, lambda *_: agent.terminate())
    try:
        return agent.run()
    finally:
        agent.close()


if __name__ == "__main__":
    sys.exit(main())
