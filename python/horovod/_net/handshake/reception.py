"""What is said on a connection until it is authenticated and joins its pair.

A connection that breaks the protocol is dropped. Used by connect, which moves the messages; `auth` has the proofs.
"""

from __future__ import annotations

from collections.abc import Mapping

from horovod._net.failures import AuthenticationError, ProtocolError
from horovod._net.handshake import proofs
from horovod._net.handshake.dialler import Dialler
from horovod._net.handshake.frames import auth, messages
from horovod._net.handshake.frames.codes import FrameCodes
from horovod._net.handshake.frames.messages import ROLE_CONTROL, ROLE_MEET, AnyMessage
from horovod._net.handshake.members import Members
from horovod._net.handshake.pairing import Pair
from horovod._net.handshake.visits import Visit, Visits


class Reception:
    """Hears visits, ours and others'.

    Args:
        rank: of this process.
        pairs: this rank and every other one, by rank.
        visits: all of them.
        members: whom authenticated ranks join.
        dialler: for ranks that knock.
    """

    def __init__(
        self, rank: int, pairs: Mapping[int, Pair], visits: Visits, members: Members, dialler: Dialler
    ) -> None:
        self._rank = rank
        self._pairs = pairs
        self._visits = visits
        self._members = members
        self._dialler = dialler

    def hear(self, visit: Visit, message: AnyMessage) -> None:
        """Takes the next message of a visit.

        Raises:
            ProtocolError, AuthenticationError: it is not what should come.
            LinkClosedError: it cannot be answered.
        """
        if isinstance(visit.proof, auth.Acceptor) and isinstance(message, messages.Knock) and visit.proof.hello is None:
            self._on_knock(visit, message.rank)
            return
        key = proofs.take(visit, message, lambda hello: self._comes_by_unix(hello) == visit.link.is_unix)
        if key is not None:
            self._admit(visit, key)

    def _comes_by_unix(self, hello: messages.Hello) -> bool:
        pair = self._pairs.get(hello.from_rank)
        return pair is not None and hello.role == ROLE_MEET and not pair.across

    def _on_knock(self, visit: Visit, rank: int) -> None:
        if not visit.link.is_unix or rank >= self._rank:
            raise ProtocolError(f"Rank {rank} asks rank {self._rank} to connect; only lower ranks may.")
        visit.proof, visit.rank = None, rank
        self._dialler.reach(rank)

    def _admit(self, visit: Visit, key: bytes) -> None:
        """The connection is authenticated: it joins its pair."""
        pair = self._pairs.get(visit.rank)
        if pair is None:
            raise AuthenticationError(f"Rank {visit.rank} came before it was needed.")
        opened_by_higher = visit.accepted == (visit.rank > self._rank)
        expected = pair.meet is None if visit.role == ROLE_MEET else not pair.same_host and pair.offer is not None
        if not opened_by_higher or not expected or visit.role in pair.links:
            raise AuthenticationError(f"Rank {visit.rank} connected twice, or in the wrong order or direction.")
        link = self._visits.hand_over(visit)
        if visit.role == ROLE_MEET:
            if not link.is_unix:
                link.protect(FrameCodes(key, connector=not visit.accepted))
            self._visits.drop_knocks_at(pair.rank)
            self._members.join(pair, link)
            return
        pair.links[visit.role] = link
        pair.key = key if visit.role == ROLE_CONTROL else pair.key
