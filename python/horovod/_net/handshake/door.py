"""Where this rank listens, whom it lets in, and how strangers are kept from filling the house.

A connection that is not authenticated in time is dropped and logged; the job goes on. So are the oldest when there are
too many. Used by connect, which hears what those say that have been let in.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Iterator
from typing import Optional

from horovod._net.failures import ConnectError
from horovod._net.handshake.frames import auth
from horovod._net.handshake.frames.links import Link
from horovod._net.handshake.frames.messages import ROLE_CONTROL, ROLE_MEET
from horovod._net.handshake.frames.tcp_options import notice_cut_links
from horovod._net.handshake.frames.watch import Watch
from horovod._net.handshake.pairing import Pair
from horovod._net.handshake.strangers import Report, first_to_go
from horovod._net.handshake.visits import Visit, Visits

HANDSHAKE_S = 10.0
_ACCEPTED_AT_ONCE = 64  # then the others get their turn
_LOOPBACK = "127.0.0.1"


class Door:
    """The listening sockets of one rank.

    Args:
        credentials: of this rank; its `uid` is the only one that peers may have.
        visits: where those go that have been let in.
        report: of strangers.
        watch: wakes the rank.
        clock: seconds.
        most: connections at a time that are not authenticated; None: enough for all ranks to come at once.

    Attributes:
        rank: of this process.
    """

    def __init__(
        self,
        credentials: auth.Credentials,
        visits: Visits,
        report: Report,
        watch: Watch,
        clock: Callable[[], float],
        most: Optional[int] = None,
    ) -> None:
        self.rank = credentials.rank
        self._most = 2 * credentials.size + 64 if most is None else most
        self._credentials = credentials
        self._visits = visits
        self._report = report
        self._watch = watch
        self._clock = clock
        self.tcp: Optional[socket.socket] = None
        self._others: Optional[socket.socket] = None

    def open(self, meeting: Optional[socket.socket], others: Optional[socket.socket], with_loopback: bool) -> None:
        """Answers at the meeting's socket and at the one for other hosts, which both stay the caller's, and by TCP on
        the loopback if asked to.
        """
        if meeting is None:
            raise ConnectError("The meeting directory was not joined.")
        self._watch.add(meeting)
        if others is not None:
            self.answer_at(others)
        if with_loopback:
            self.tcp = socket.create_server((_LOOPBACK, 0), backlog=4096)
            self.tcp.setblocking(False)
            self._watch.add(self.tcp)

    def answer_at(self, others: socket.socket) -> None:
        """Answers at the socket for other hosts, which stays the caller's."""
        self._others = others
        self._watch.add(others)

    def leave_others(self) -> None:
        """Stops answering at the socket for other hosts: later connections are for somebody else."""
        if self._others is not None:
            self._watch.remove(self._others)
            self._others = None
            for visit in [visit for visit in self._visits if visit.accepted and not visit.link.is_unix]:
                self._visits.drop(visit)

    def address_for(self, pair: Pair) -> Optional[tuple[str, int]]:
        """Where a rank finds this one by TCP, if it does."""
        listener = self._others if pair.across else self.tcp
        if listener is None:
            return None
        host, port = listener.getsockname()[:2]
        return str(host), int(port)

    def accept(self, listener: socket.socket) -> Iterator[Link]:
        """Accepts the waiting connections in turn: read each at once, as a rank has spoken already, and that tells it
        from a crowd that says nothing.
        """
        for _ in range(_ACCEPTED_AT_ONCE):
            if listener.fileno() < 0:
                return  # closed by what came in the same moment: nobody else is expected there
            try:
                sock, _ = listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE) or not self._drop_surplus():
                    raise
                continue
            link = Link(sock)
            if not link.is_unix:
                notice_cut_links(sock)
            if link.is_unix and link.peer_process()[1] != self._credentials.uid:
                self._report.tell(
                    f"a connection of uid {link.peer_process()[1]} was refused; this job runs as uid "
                    f"{self._credentials.uid}"
                )
                link.close()
                continue
            if len(self._visits) > self._most and sum(visit.accepted for visit in self._visits) > self._most:
                self._drop_surplus()
            role = ROLE_MEET if link.is_unix else ROLE_CONTROL
            self._visits.begin(Visit(link, auth.Acceptor(self._credentials), -1, role, self._clock() + HANDSHAKE_S))
            yield link

    def _drop_surplus(self) -> bool:
        stranger = first_to_go(visit for visit in self._visits if visit.accepted)
        if stranger is not None:
            self._visits.drop(stranger)
            self._report.tell("too many connections send nothing; the oldest are dropped")
        return stranger is not None

    def drop_slow_strangers(self) -> None:
        """Drops those that have not authenticated in time."""
        now = self._clock()
        for visit in [visit for visit in self._visits if visit.deadline <= now]:
            if visit.proof is not None:
                self._report.tell(f"a connection that did not authenticate within {HANDSHAKE_S:g} s was dropped")
                self._visits.drop(visit)
            else:
                visit.deadline = now + HANDSHAKE_S  # one that knocked may stay: its end tells that the rank died

    def next_s(self) -> float:
        """When the next stranger's time is over; infinite when there is none."""
        return min((visit.deadline for visit in self._visits), default=float("inf"))

    def close(self) -> None:
        """Closes what `open` has opened, not what it was given. May be called twice."""
        if self.tcp is not None:
            self.tcp.close()
