"""What is said on a connection until it is authenticated and joins its pair.

Whoever speaks nonsense is dropped. Used by connect, which moves the messages; `auth` has the proofs.
"""

from __future__ import annotations

from collections.abc import Mapping

from horovod._net.failures import AuthenticationError, ProtocolError
from horovod._net.handshake import auth, messages
from horovod._net.handshake.codes import FrameCodes
from horovod._net.handshake.dialler import Dialler
from horovod._net.handshake.links import LinkClosedError
from horovod._net.handshake.members import Members
from horovod._net.handshake.messages import ROLE_CONTROL, ROLE_MEET, AnyMessage
from horovod._net.handshake.pairing import Pair
from horovod._net.handshake.tcp_options import notice_cut_links
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
        proof = visit.proof
        if isinstance(proof, auth.Connector) and isinstance(message, messages.Challenge):
            visit.link.send(proof.answer(message))
            if visit.link.wants_to_write:
                raise LinkClosedError("it does not read")  # a few dozen bytes always fit
            self._admit(visit, proof.key or b"")
        elif isinstance(proof, auth.Acceptor) and isinstance(message, messages.Hello):
            challenge = proof.challenge(message)
            if self._comes_by_unix(message) != visit.link.is_unix:
                raise AuthenticationError(
                    f"Rank {message.from_rank} came with a role that does not fit its connection."
                )
            visit.rank, visit.role = message.from_rank, message.role
            visit.link.send(challenge)
        elif isinstance(proof, auth.Acceptor) and isinstance(message, messages.Proof):
            proof.check(message)
            self._admit(visit, proof.key or b"")
        elif isinstance(proof, auth.Acceptor) and isinstance(message, messages.Knock) and proof.hello is None:
            self._on_knock(visit, message.rank)
        else:
            raise ProtocolError(f"A {type(message).__name__} came at the wrong time.")

    def _comes_by_unix(self, hello: messages.Hello) -> bool:
        return hello.role == ROLE_MEET and not self._pairs[hello.from_rank].across

    def _on_knock(self, visit: Visit, rank: int) -> None:
        if not visit.link.is_unix or rank >= self._rank:
            raise ProtocolError(f"Rank {rank} knocks at rank {self._rank}; only lower ranks do.")
        visit.proof, visit.rank = None, rank
        self._dialler.reach(rank)

    def _admit(self, visit: Visit, key: bytes) -> None:
        """The connection is authenticated: it joins its pair."""
        pair = self._pairs[visit.rank]
        opened_by_higher = visit.accepted == (visit.rank > self._rank)
        expected = pair.meet is None if visit.role == ROLE_MEET else not pair.same_host and pair.offer is not None
        if not opened_by_higher or not expected or visit.role in pair.links:
            raise AuthenticationError(f"Rank {visit.rank} connected twice, or in the wrong order or direction.")
        link = self._visits.hand_over(visit)
        if visit.role == ROLE_MEET:
            if not link.is_unix:
                notice_cut_links(link.sock)
                link.protect(FrameCodes(key, connector=not visit.accepted))
            self._visits.drop_knocks_at(pair.rank)
            self._members.join(pair, link)
            return
        pair.links[visit.role] = link
        pair.key = key if visit.role == ROLE_CONTROL else pair.key
