"""Connections that are not (yet) part of a pair, and how they end.

Used by the door, which lets others' in, by the dialler, which opens our own, and by the reception, which hears what
they say.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Optional, Union

from horovod._net.failures import ConnectError
from horovod._net.handshake.blame import Blame
from horovod._net.handshake.frames import auth
from horovod._net.handshake.frames.links import Link
from horovod._net.handshake.frames.messages import AnyMessage
from horovod._net.handshake.frames.watch import Watch
from horovod._net.handshake.strangers import Report


@dataclass
class Visit:
    """A connection that is not (yet) part of a pair.

    Attributes:
        proof: our half of the handshake; None for one that only knocks.
        rank: the peer; -1 while unknown.
        role: of the connection.
        deadline: when an accepted stranger is dropped; infinite for connections of our own.
    """

    link: Link
    proof: Union[auth.Connector, auth.Acceptor, None]
    rank: int
    role: int
    deadline: float

    @property
    def named(self) -> bool:
        """True when it has said who it is, though perhaps not proven."""
        return self.rank >= 0

    @property
    def accepted(self) -> bool:
        """True when the other side opened it."""
        return self.deadline != float("inf")


class Visits:
    """All of them, oldest first. It owns their links.

    Args:
        watch: wakes the rank.
        report: of strangers.
        blame: for ranks whose process has died; None: nobody comes by a Unix socket.
    """

    def __init__(self, watch: Watch, report: Report, blame: Optional[Blame]) -> None:
        self._watch = watch
        self._report = report
        self._blame = blame
        self._visits: dict[Link, Visit] = {}

    def __iter__(self) -> Iterator[Visit]:
        return iter(self._visits.values())

    def __len__(self) -> int:
        return len(self._visits)

    def of(self, link: Link) -> Optional[Visit]:
        """The visit of this connection, if it is one."""
        return self._visits.get(link)

    def begin(self, visit: Visit) -> None:
        """Takes the link over."""
        self._visits[visit.link] = visit
        self._watch.add(visit.link)

    def send(self, visit: Visit, message: AnyMessage) -> None:
        """Sends the first message of a visit of our own. Raises LinkClosedError as `Link.send`."""
        visit.link.send(message)
        self._watch.update(visit.link)

    def hand_over(self, visit: Visit) -> Link:
        """The visit is over, its connection goes on: the link is the caller's."""
        del self._visits[visit.link]
        self._watch.remove(visit.link)
        return visit.link

    def drop(self, visit: Visit) -> None:
        """Closes the connection. May be called twice."""
        if self._visits.pop(visit.link, None) is not None:
            self._watch.remove(visit.link)
            visit.link.close()

    def drop_knocks_at(self, rank: int) -> None:
        """Closes our knocks at a rank that has connected."""
        for visit in [v for v in self if v.proof is None and v.rank == rank and not v.accepted]:
            self.drop(visit)

    def lost(self, visit: Visit, how: str) -> None:
        """The other side is gone.

        Raises:
            ConnectError: it is a rank of ours, which has died.
        """
        self.drop(visit)
        if not visit.named:
            self._report.tell("a connection was closed before it said who it is")
        elif visit.link.is_unix and self._blame is not None:
            self._blame.require_alive(visit.rank, how)  # by TCP a stranger may have used its name

    def refuse(self, visit: Visit, error: Exception) -> None:
        """The other side misbehaved: strangers are dropped.

        Raises:
            ConnectError: we opened it.
        """
        self.drop(visit)
        if not visit.accepted:
            raise ConnectError(f"Rank {visit.rank} cannot be trusted: {error}", [visit.rank]) from error
        self._report.tell(f"a connection was dropped: {error}")

    def close(self) -> None:
        """Drops all."""
        for visit in list(self):
            self.drop(visit)
