"""The connections that this rank opens: to lower ranks, knocks at higher ones, and by TCP where a peer listens.

A rank whose connection was dropped in a crowd of strangers comes again. Used by connect and the reception; what the
other side says to it is heard in the reception.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Mapping

from horovod._net.failures import ConnectError
from horovod._net.handshake.blame import Blame
from horovod._net.handshake.frames import auth, messages
from horovod._net.handshake.frames.links import Link, LinkClosedError
from horovod._net.handshake.frames.messages import ROLE_MEET, AnyMessage
from horovod._net.handshake.frames.tcp_options import notice_cut_links
from horovod._net.handshake.pairing import Pair
from horovod._net.handshake.strangers import Comebacks
from horovod._net.handshake.visits import Visit, Visits
from horovod._net.meeting.directory import Meeting


class Dialler:
    """Opens connections until they are authenticated.

    Args:
        meeting: joined; the other ranks' sockets are there.
        credentials: of this rank.
        pairs: this rank and every other one, by rank.
        visits: where the new connections go.
        blame: for ranks whose process has died.
        clock: seconds.
    """

    def __init__(
        self,
        meeting: Meeting,
        credentials: auth.Credentials,
        pairs: Mapping[int, Pair],
        visits: Visits,
        blame: Blame,
        clock: Callable[[], float],
    ) -> None:
        self._meeting = meeting
        self._credentials = credentials
        self._pairs = pairs
        self._visits = visits
        self._blame = blame
        self._clock = clock
        self._comebacks = Comebacks()

    def reach(self, rank: int) -> None:
        """Connects to a lower rank, knocks at a higher one of this host; does nothing when that has been done."""
        if self._pairs[rank].meet is not None or any(v.rank == rank and not v.accepted for v in self._visits):
            return
        if self._pairs[rank].across:
            if rank < self._credentials.rank:
                self._dial(self._pairs[rank], ROLE_MEET)
            return
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        code = sock.connect_ex(self._meeting.address(f"r{rank}"))
        if code:
            sock.close()
            if code == errno.EAGAIN:
                self._comebacks.wait(rank, ROLE_MEET, self._clock(), patient=True)  # its queue is full at the moment
            elif code == errno.ECONNREFUSED:
                self._blame.require_alive(rank, "it left its socket behind")
            return  # it is just leaving: if it comes again, it will connect or knock
        if rank > self._credentials.rank:
            self.open(Visit(Link(sock), None, rank, ROLE_MEET, float("inf")), messages.Knock(self._credentials.rank))
        else:
            self._greet(sock, rank, ROLE_MEET)

    def open_tcp(self, pair: Pair, address: messages.Address) -> None:
        """Opens the connections that are needed to a rank that has sent its address.

        Raises:
            ConnectError: it should not have.
        """
        if pair.same_host or pair.links or pair.rank > self._credentials.rank:
            raise ConnectError(f"{pair.name()} sent an address that is not needed.", [pair.rank])
        pair.address = (address.host, address.port)
        for role in pair.roles:
            self._dial(pair, role)

    def _dial(self, pair: Pair, role: int) -> None:
        try:
            sock = dial(*pair.address)
        except OSError as error:
            raise ConnectError(unreachable(pair.name(), pair.address, error), [pair.rank]) from error
        self._greet(sock, pair.rank, role)

    def _greet(self, sock: socket.socket, rank: int, role: int) -> None:
        proof = auth.Connector(self._credentials, rank, role)
        self.open(Visit(Link(sock), proof, rank, role, float("inf")), proof.hello)

    def open(self, visit: Visit, first: AnyMessage) -> None:
        """Begins a visit of our own with its first message."""
        self._visits.begin(visit)
        if visit.link.is_unix and visit.link.peer_process()[1] != self._credentials.uid:
            raise ConnectError(f"Another user's process listens in place of rank {visit.rank}.", [visit.rank])
        try:
            self._visits.send(visit, first)
        except LinkClosedError as error:
            self.lost(visit, error)

    def lost(self, visit: Visit, how: LinkClosedError) -> None:
        """The other side of a visit is gone: in a crowd, or because we are not wanted.

        Raises:
            ConnectError: its process has died, its host does not answer, or it has refused our connection too often.
        """
        self._visits.lost(visit, str(how))
        if how.silent and not visit.accepted:  # else it is the other side that knows whom it wants
            raise self._blame.no_answer(visit.rank, str(how))
        # A knock shows nothing by which it could be unwanted, and without it the higher rank would never look for us.
        knocks = visit.proof is None
        if not visit.accepted and not self._comebacks.wait(visit.rank, visit.role, self._clock(), patient=knocks):
            pair = self._pairs[visit.rank]
            remedy = (
                " at {} port {}; does a firewall let only ssh through?".format(*pair.address) if pair.across else "."
            )
            raise self._blame.root_cause(f"{pair.name()} refused this rank's connection: {how}{remedy}", pair.rank)

    def come_again(self) -> None:
        """Opens the connections once more whose time has come."""
        for rank, role in self._comebacks.due(self._clock()):
            self.reach(rank) if role == ROLE_MEET else self._dial(self._pairs[rank], role)

    def next_s(self) -> float:
        """When the next one comes again; infinite when none does."""
        return self._comebacks.next_s()


def dial(host: str, port: int) -> socket.socket:
    """A connection that is being made; its end is heard as on one that stands.

    Args:
        host: an address, in numbers.
        port: where a rank listens.

    Raises:
        OSError: it cannot be made.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    where = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)[0][4]
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    notice_cut_links(sock)
    code = sock.connect_ex(where)
    if code not in (0, errno.EINPROGRESS):
        sock.close()
        raise OSError(code, os.strerror(code))
    return sock


def unreachable(who: str, address: tuple[str, int], error: OSError) -> str:
    """Why a rank cannot be connected to."""
    return f"{who} cannot be reached at {address[0]} port {address[1]}: {error.strerror}."
