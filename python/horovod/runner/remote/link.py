"""The launcher's side of one agent: the process that leads to it, and the messages both ways.

Used by `fleet`. A link goes through `State`s; what happens to its ranks becomes events of a crew.
"""

from __future__ import annotations

import contextlib
import enum
import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Callable, Final, Optional

import horovod
from horovod._net.failures import ProtocolError
from horovod.runner.crew import Asks, Bereft, Event, Exited, Output, Refused, Started
from horovod.runner.hosts import Slot
from horovod.runner.remote import frames, messages
from horovod.runner.remote.channel import Channel
from horovod.runner.remote.diagnosis import Facts
from horovod.runner.remote.dump_inbox import DumpInbox
from horovod.runner.remote.loop import Loop
from horovod.runner.remote.pulses import new_key
from horovod.runner.remote.vigil import Vigil
from horovod.runner.remote.workplace import STREAMS
from horovod.runner.vitals import Vitals

_SAID_BYTES: Final = 1 << 14
_ENDING_S: Final = 1.0


class State(enum.Enum):
    """How far an agent is."""

    CALLED = "called"
    GREETED = "has introduced itself"
    READY = "has checked the job"
    RUNNING = "has started its ranks"
    DONE = "has nothing left"
    LOST = "is gone"


@dataclass(frozen=True)
class Way:
    """How an agent is started.

    Attributes:
        words: the command.
        environ: its variables.
        host: the name of the host.
        slots: of its ranks.
        python, port, patience_s: see `diagnosis.Facts`.
        link_timeout_s: see `vigil`.
    """

    words: Sequence[str]
    environ: Mapping[str, str]
    host: str
    slots: tuple[Slot, ...]
    python: str
    port: Optional[int]
    patience_s: float
    link_timeout_s: float


class Link:
    """See the head of the file.

    Args:
        loop: that calls.
        way: to the host.
        post: takes an entry of the board from the host's ranks.

    Attributes:
        ranks: of this host, those that have ended too.
        living: those that have not.
        state: see `State`.
        hello: the agent's first words, once it is greeted.
        why: of a lost agent, in words.
        ready: how the ranks share the host, once the agent is ready: "summary" in a line, "remarks" for the user.
        dumps: of its ranks, as they come.
        up: ranks that have called hvd.init().
        over: one of them has left again.
        strays: so many processes of this host called hvd.init() without the launcher's variables.
        channel: to the agent.
        absent: it has not answered, or not in time: its host may come later.

    Raises:
        OSError: the process cannot be started.
    """

    def __init__(self, loop: Loop, way: Way, post: Callable[[str], None]) -> None:
        self.way = way
        self.ranks = tuple(slot.rank for slot in way.slots)
        self.living = set(self.ranks)
        self.state = State.CALLED
        self.hello: dict[str, Any] = {}
        self.why = ""
        self.absent = False
        self.ready: dict[str, Any] = {}
        self.dumps = DumpInbox(self.ranks)
        self.up: set[int] = set()
        self._vitals: dict[int, Optional[Vitals]] = {}
        self.over = False
        self.strays = 0
        self._loop = loop
        self._post = post
        self._events: list[Event] = []
        self._said = b""
        self._taken_bytes = 0
        self._hopeless = False
        self._pulse_key = new_key()
        self._pulse_address = ""
        # A session of its own: Ctrl-C is for the launcher, which tells the ranks by itself.
        self._process = subprocess.Popen(
            way.words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(way.environ),
            cwd="/",
            start_new_session=True,
        )
        assert self._process.stdin and self._process.stdout and self._process.stderr
        # Nobody knows how long a login takes: an agent is alive once it has said its first word.
        vigil = Vigil(way.link_timeout_s, time.monotonic(), begun=False)
        fds = (os.dup(self._process.stdout.fileno()), os.dup(self._process.stdin.fileno()))
        self._process.stdout.close()
        self._process.stdin.close()
        os.set_blocking(self._process.stderr.fileno(), False)
        loop.watch(self._process.stderr.fileno(), self._hear)
        self.channel = Channel(loop, fds, frames.FROM_AGENT, self._on_frame, self._on_end, vigil)

    def events(self) -> list[Event]:
        """What has happened to its ranks since."""
        events, self._events = self._events, []
        return events

    def vitals(self) -> dict[int, Optional[Vitals]]:
        """What its ranks have used, where that has changed; None: it is not known."""
        news, self._vitals = self._vitals, {}
        return news

    @property
    def failed(self) -> bool:
        """It is gone, or has refused the job."""
        return bool(self.why)

    @property
    def waiting(self) -> bool:
        """Something is still on its way to the agent."""
        return self.channel.waiting

    def invite_pulses(self, address: str) -> dict[str, Any]:
        """What the agent must know to answer datagrams at this address of its host; empty: unknown."""
        self._pulse_address = address
        return {"address": address, "key": self._pulse_key.hex()}

    def tell(self, message: str, **fields: Any) -> None:
        """Sends a control message."""
        self.channel.send(frames.frame(frames.CONTROL, messages.encode(message, **fields)))

    def expect(self, rank: int) -> None:
        """One more rank of a job that grows is, or will be, started on this host."""
        self.ranks += (rank,)
        self.living.add(rank)

    def give(self, function_fd: int) -> None:
        """Sends the function of horovod.run, piece by piece."""
        self.channel.send_all(_pieces(function_fd))

    def go(self) -> None:
        """The ranks shall start."""
        self.state = State.RUNNING
        self.tell("go")

    def stand(self, text: str) -> None:
        """An entry stands on the board."""
        self.channel.send(frames.frame(frames.POST, text.encode()))

    def taken(self) -> None:
        """The output that had come has been written: the agent may send as much again."""
        if self._taken_bytes:
            self.tell("credit", bytes=self._taken_bytes)
            self._taken_bytes = 0

    def give_up(self, why: str = "") -> None:
        """Gives the agent up; it ends its ranks when it hears nothing more. Without a reason, it was too slow."""
        if self.state not in (State.DONE, State.LOST):
            self._hopeless = True
            self.absent = not why
            self._lose(why or self._facts(None).why())

    def hang_up(self) -> None:
        """Ends the connection: the agent ends what it still has, and itself."""
        self.channel.close()

    def is_cleared(self, deadline_s: float) -> bool:
        """Of a link that is hung up: its process has ended. Does not wait: a process that leads nowhere, or should have
        ended by this time, is killed."""
        if self._process.poll() is None and not self._hopeless and time.monotonic() < deadline_s:
            return False
        self.close(deadline_s)
        return True

    def close(self, deadline_s: float) -> None:
        """Waits for the process until this time, and kills it then; one that leads nowhere at once."""
        assert self._process.stderr
        if not self._process.stderr.closed:
            self._loop.watch(self._process.stderr.fileno(), None)
            self._process.stderr.close()
        self._wait(0.0 if self._hopeless else max(0.0, deadline_s - time.monotonic()))

    def _wait(self, patience_s: float) -> Optional[int]:
        """The process's exit code; None when it had to be killed."""
        try:
            return self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return None

    def _hear(self) -> None:
        assert self._process.stderr
        data = b""
        with contextlib.suppress(OSError):
            data = os.read(self._process.stderr.fileno(), _SAID_BYTES)
        if not data:
            self._loop.watch(self._process.stderr.fileno(), None)
        self._said = (self._said + data)[-_SAID_BYTES:]

    def _facts(self, code: Optional[int]) -> Facts:
        said = self._said.decode("utf-8", "replace")
        return Facts(self.way.host, self.way.python, self.way.port, code, said, self.way.patience_s)

    def _on_frame(self, kind: int, body: bytes) -> None:
        if kind == frames.HELLO and self.state is State.CALLED:
            _, self.hello = messages.decode(body, messages.HELLO)
            self.state = State.GREETED
            self._compare()
        elif self.state is State.CALLED:
            raise ProtocolError("An agent must introduce itself first.")
        elif kind == frames.CONTROL:
            name, fields = messages.decode(body, messages.FROM_AGENT)
            self._on_control(name, fields)
        elif kind == frames.OUTPUT:
            rank, stream, data = frames.output_of(body)
            if rank not in self.ranks or stream >= len(STREAMS):
                raise ProtocolError("Output of a rank or stream that is not there.")
            self._taken_bytes += len(data)
            self._events.append(Output(rank, STREAMS[stream], data))
        elif kind == frames.DUMP:
            self.dumps.dump(*frames.dump_of(body))
        elif kind == frames.POST:
            self._post(body.decode("utf-8", "replace"))

    def _compare(self) -> None:
        there = self.hello["version"]
        if (there, self.hello["protocol"]) != (horovod.__version__, frames.PROTOCOL):
            self._lose(f"it has Horovod {there}, this machine {horovod.__version__}; install the same version on both")

    def _on_control(self, name: str, fields: Mapping[str, Any]) -> None:
        rank = fields.get("rank", self.ranks[0])
        if rank not in self.ranks:
            raise ProtocolError(f"Rank {rank} is not on this host.")
        if name == "ready":
            self.state, self.ready = State.READY, dict(fields)
            if fields["pulses"]:
                self.channel.pulse(self._pulse_key, self._pulse_address, fields["pulses"], asks=True)
        elif name == "refused":
            self._lose(fields["why"])
        elif name == "started":
            self._events.append(Started(rank, fields["pid"]))
        elif name == "failed":
            self.living.discard(rank)
            self._events.append(Refused(rank, fields["errno"], fields["forked"]))
        elif name == "exited":
            at_s = time.monotonic() - fields["age"]
            self.living.discard(rank)
            self._events.append(Exited(rank, fields["status"], at_s, fields["how"], fields["peak"]))
        elif name == "asks":
            self._events.append(Asks(rank, (fields["epoch"], fields["commits"]), fields["why"]))
        elif name == "bereft":
            self._events.append(Bereft(rank))
        elif name == "up":
            self.up.add(rank)
        elif name == "over":
            self.over = True
        elif name == "strays":
            self.strays += fields["count"]
        elif name == "silent":
            self.dumps.silent(rank, fields["why"])
        elif name == "vitals":
            told = {row[0]: Vitals(*row[1:]) if row[1:] else None for row in fields["ranks"]}
            self._vitals.update((each, told[each]) for each in self.ranks if each in told)
        elif name == "collected":
            self.dumps.collected(fields["round"])
        elif fields["lost"]:
            self._lose("the process that keeps its ranks has died, so they were stopped")
        else:
            self.state = State.DONE

    def _on_end(self, reason: str) -> None:
        """The connection has ended, or brings nonsense."""
        if self.state in (State.DONE, State.LOST):
            return
        self._hopeless = bool(reason)
        code = self._wait(_ENDING_S) if not reason else None
        self._hear_rest()
        if self.state is State.CALLED and reason:
            self._lose(f"what runs there is no agent: {reason}")
        elif self.state is State.CALLED:
            facts = self._facts(code)
            self.absent = facts.may_come
            self._lose(facts.why())
        else:
            words = [line.strip() for line in self._said.decode("utf-8", "replace").splitlines() if line.strip()]
            told = f" ({words[-1][:500]})" if words else ""
            self._lose(f"{reason or 'the connection to it has ended'}{told}")

    def _hear_rest(self) -> None:
        assert self._process.stderr
        if not self._process.stderr.closed:
            self._hear()

    def _lose(self, why: str) -> None:
        if not self.why:
            self.why = why
        self.state = State.LOST
        self.channel.close()


def _pieces(function_fd: int) -> Iterator[bytes]:
    at = 0
    while data := os.pread(function_fd, frames.MAX_FUNCTION_BYTES, at):
        at += len(data)
        yield frames.frame(frames.FUNCTION, data)
    yield frames.frame(frames.FUNCTION)
