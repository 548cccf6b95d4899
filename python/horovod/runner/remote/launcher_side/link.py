"""The launcher's side of one agent: the connection that leads to it, and the messages both ways.

Used by `fleet`. A link goes through `State`s; what happens to its ranks becomes events of a crew.
"""

from __future__ import annotations

import enum
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Callable, Final, Optional

import horovod
from horovod._net.failures import ProtocolError
from horovod.runner.live.figures import Reading, from_wire
from horovod.runner.loop import Loop
from horovod.runner.machines.hosts import Slot
from horovod.runner.processes.crew import Asks, Bereft, Event, Exited, Output, Refused, Started
from horovod.runner.processes.vitals import Vitals
from horovod.runner.remote.host_side.workplace import STREAMS
from horovod.runner.remote.launcher_side.dump_inbox import DumpInbox
from horovod.runner.remote.ways.transport import Transport
from horovod.runner.remote.wire import frames, messages
from horovod.runner.remote.wire.channel import Channel
from horovod.runner.remote.wire.pulses import new_key
from horovod.runner.remote.wire.vigil import Vigil

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
    """Which agent is called, and how.

    Attributes:
        transport: that reaches it.
        host: the name of its host.
        slots: of its ranks.
        link_timeout_s: see `vigil`.
    """

    transport: Transport
    host: str
    slots: tuple[Slot, ...]
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
        strays: number of processes of this host that called hvd.init() without the launcher's variables.
        channel: to the agent.
        absent: it has not answered, or not in time: its host may come later.

    Raises:
        OSError: it cannot be called.
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
        self._figures: dict[int, Reading] = {}
        self.over = False
        self.strays = 0
        self._post = post
        self._events: list[Event] = []
        self._taken_bytes = 0
        self._hopeless = False
        self._pulse_key = new_key()
        self._pulse_address = ""
        self._connection = way.transport.open(way.host, loop)
        # Nobody knows how long a login takes: an agent is alive once it has said its first word.
        vigil = Vigil(way.link_timeout_s, time.monotonic(), begun=False)
        self.channel = Channel(loop, self._connection.fds, frames.FROM_AGENT, self._on_frame, self._on_end, vigil)

    def events(self) -> list[Event]:
        """What has happened to its ranks since."""
        events, self._events = self._events, []
        return events

    def vitals(self) -> dict[int, Optional[Vitals]]:
        """What its ranks have used, where that has changed; None: it is not known."""
        news, self._vitals = self._vitals, {}
        return news

    def figures(self) -> dict[int, Reading]:
        """What its ranks have counted, where the agent has said so since."""
        news, self._figures = self._figures, {}
        return news

    @property
    def peer(self) -> str:
        """The address by which its host is seen here; empty: unknown, or the same machine."""
        return self._connection.peer

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
        """Starts the ranks."""
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
            self._lose(why or self._connection.ending(None).why)

    def hang_up(self) -> None:
        """Ends the connection: the agent ends what it still has, and itself."""
        self.channel.close()

    def is_cleared(self, deadline_s: float) -> bool:
        """Of a link that is hung up: its connection has ended. Does not wait: one that leads nowhere, or should have
        ended by this time, is ended here."""
        if not self._hopeless and time.monotonic() < deadline_s and not self._connection.ended():
            return False
        self.close(deadline_s)
        return True

    def close(self, deadline_s: float) -> None:
        """Waits for the connection's end until this time, and ends it then; one that leads nowhere at once."""
        self._connection.close(0.0 if self._hopeless else max(0.0, deadline_s - time.monotonic()))

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
                raise ProtocolError("Output of an unknown rank or stream.")
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
            reported = {row[0]: Vitals(*row[1:]) if row[1:] else None for row in fields["ranks"]}
            self._vitals.update((each, reported[each]) for each in self.ranks if each in reported)
        elif name == "figures":
            now_s = time.monotonic()
            for number, *counted in fields["ranks"]:
                if number in self.ranks:
                    self._figures[number] = Reading(from_wire(counted), now_s, self.way.host)
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
        ending = self._connection.ending(None if reason else _ENDING_S)
        if self.state is State.CALLED and reason:
            self._lose(f"the program that answers there is not an agent: {reason}")
        elif self.state is State.CALLED:
            self.absent = ending.may_come
            self._lose(ending.why)
        else:
            how = f" ({ending.words})" if ending.words else ""
            self._lose(f"{reason or 'the connection to it has ended'}{how}")

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
