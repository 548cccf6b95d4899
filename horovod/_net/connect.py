"""Connects one rank with all others of its job: the loop, the authentication of every connection, and who is to blame
when it fails.

Each pair of ranks has one Unix connection, opened by the higher rank (which knocks at nobody; a lower rank that comes
later knocks at the higher ones, so nobody polls the directory). Over it, once mutually authenticated, `pairing`
exchanges what the two need. A connection that is not authenticated in time, or speaks nonsense, is dropped and
logged; the job goes on. A peer that dies is noticed by its closed connection, and whoever fails tells the others why.
Used by bootstrap. One thread, one selector; the clock is injected.
"""

from __future__ import annotations

import errno
import logging
import selectors
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Optional, Union

from horovod._net import auth, memory, messages
from horovod._net.connections import Peer
from horovod._net.deaths import Deaths
from horovod._net.failures import AuthenticationError, ConnectError, ProtocolError, StartTimeoutError
from horovod._net.links import Link, LinkClosedError
from horovod._net.meeting import Meeting
from horovod._net.messages import ROLE_CONTROL, ROLE_DATA, ROLE_MEET, AnyMessage
from horovod._net.pairing import OwnSide, Pair
from horovod._net.placement import Placement

HANDSHAKE_S = 10.0
_RETRY_S = 0.005
_LOOK_S = 0.1  # how often to look for ranks that have ended without a connection
_EXIT_S = 0.2  # between the end of a dying process's connections and its own
_LOOPBACK = "127.0.0.1"

log = logging.getLogger("horovod")


@dataclass
class Visit:
    """A connection that is not (yet) part of a pair.

    Attributes:
        proof: our half of the handshake; None for one that only knocks.
        rank: whom we connect to, or who knocked; -1 while unknown.
        role: of the connection.
        deadline: when an accepted stranger is dropped; infinite for connections of our own.
    """

    link: Link
    proof: Union[auth.Connector, auth.Acceptor, None]
    rank: int
    role: int
    deadline: float

    @property
    def accepted(self) -> bool:
        """True when the other side opened it."""
        return self.deadline != float("inf")


class Mesh:
    """The connections of one rank while they are being made."""

    def __init__(
        self,
        meeting: Meeting,
        credentials: auth.Credentials,
        own: OwnSide,
        same_host: Sequence[bool],
        placement: Placement,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            meeting: joined.
            credentials: of this rank; its `uid` is the only one that peers may have.
            own: what this rank offers.
            placement: of this rank.
            same_host: for each rank, whether it shares memory with this one.
            clock: seconds.
        """
        self.pairs = {r: Pair(r, same_host[r]) for r in range(credentials.size) if r != credentials.rank}
        self._meeting = meeting
        self._credentials = credentials
        self._own = own
        self._launcher = placement.launcher
        self._deaths = Deaths(meeting, placement)
        self._next_look = clock() + _LOOK_S
        self._clock = clock
        self._selector = selectors.DefaultSelector()
        self._visits: dict[Link, Visit] = {}
        self._members: dict[Link, Pair] = {}
        self._retry: set[int] = set()
        self._logged: set[str] = set()
        self._announced = False
        self._tcp: Optional[socket.socket] = None

    # ----------------------------------------------------------------------------------------------------------- loop

    def run(self, timeout_s: float) -> None:
        """Returns when every pair of ranks of the job is connected. Collective.

        Raises:
            StartTimeoutError: ranks are missing.
            ConnectError: a rank failed.
        """
        deadline = self._clock() + timeout_s
        try:
            self._start()
            while not self._finished():
                now = self._clock()
                if now >= deadline:
                    raise self._too_late(timeout_s)
                for key, _ in self._selector.select(max(0.0, min(self._next_wake(now), deadline) - now)):
                    self._serve(key.fileobj)
                self._drop_slow_strangers()
                for rank in tuple(self._retry):
                    self._reach(rank)
                self._look_for_the_dead()
        except BaseException as error:
            self._tell_others(error)
            raise

    def take_peers(self) -> list[Peer]:
        """After `run`: the descriptors, ascending by rank; the caller owns them."""
        for link in list(self._members):
            self._forget(link)
        return [self.pairs.pop(rank).finish() for rank in sorted(self.pairs)]

    def close(self) -> None:
        """Closes everything that is still owned. May be called twice."""
        for visit in list(self._visits.values()):
            self._drop(visit)
        for pair in self.pairs.values():
            pair.close()
        if self._tcp is not None:
            self._tcp.close()
        self._selector.close()

    def _start(self) -> None:
        if self._meeting.listener is None:
            raise ConnectError("The meeting directory was not joined.")
        self._selector.register(self._meeting.listener, selectors.EVENT_READ)
        if not all(pair.same_host for pair in self.pairs.values()):
            self._tcp = socket.create_server((_LOOPBACK, 0), backlog=4096)
            self._tcp.setblocking(False)
            self._selector.register(self._tcp, selectors.EVENT_READ)
        for rank in self._meeting.listening_ranks():
            self._reach(rank)

    def _finished(self) -> bool:
        """True when everybody has said that it is connected to everybody; says so itself when the time has come."""
        if not self._announced and all(pair.complete for pair in self.pairs.values()):
            if self._own.memory_fd >= 0:
                memory.clear_nonce(self._own.memory_fd)
            self._announced = True
            for pair in self.pairs.values():
                self._send(pair, messages.Ready())
        return (
            self._announced
            and all(pair.ready for pair in self.pairs.values())
            and not any(link.wants_to_write for link in self._members)
        )

    def _next_wake(self, now: float) -> float:
        wake = min((visit.deadline for visit in self._visits.values()), default=float("inf"))
        return min(wake, self._next_look, now + _RETRY_S if self._retry else float("inf"))

    def _look_for_the_dead(self) -> None:
        now = self._clock()
        if now >= self._next_look:
            self._next_look = now + _LOOK_S
            self._deaths.check([rank for rank, pair in self.pairs.items() if pair.meet is None])

    def _serve(self, source: object) -> None:
        if isinstance(source, Link):
            try:
                source.flush()
                self._read(source)
            except LinkClosedError as error:
                self._lost(source, str(error))
            except (ProtocolError, AuthenticationError) as error:
                self._refuse(source, error)
            else:
                self._watch(source)
        elif isinstance(source, socket.socket):
            self._accept(source)

    def _read(self, link: Link) -> None:
        for message in link.receive():
            visit = self._visits.get(link)
            if visit is not None:
                self._on_visit(visit, message)
            elif link in self._members:
                self._on_member(self._members[link], message)
            else:
                return  # dropped, or handed to its pair, by the message before

    def _watch(self, link: Link) -> None:
        """Tells the selector what the link waits for, as long as it is ours."""
        if link in self._visits or link in self._members:
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if link.wants_to_write else 0)
            if self._selector.get_key(link).events != events:
                self._selector.modify(link, events)

    # --------------------------------------------------------------------------------------------------- opening,
    # accepting

    def _reach(self, rank: int) -> None:
        """Connects to a lower rank, knocks at a higher one; does nothing when that has been done."""
        self._retry.discard(rank)
        if self.pairs[rank].meet is not None or any(v.rank == rank and not v.accepted for v in self._visits.values()):
            return
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        code = sock.connect_ex(self._meeting.address(f"r{rank}"))
        if code:
            sock.close()
            if code == errno.EAGAIN:
                self._retry.add(rank)  # its queue is full for the moment
            elif code == errno.ECONNREFUSED and not self._meeting.claim_is_live(rank):
                raise self._died(rank, "it left its socket behind")
            return  # it is just leaving: if it comes again, it will connect or knock
        if rank > self._credentials.rank:
            self._open(Visit(Link(sock), None, rank, ROLE_MEET, float("inf")), messages.Knock(self._credentials.rank))
        else:
            self._greet(sock, rank, ROLE_MEET)

    def _greet(self, sock: socket.socket, rank: int, role: int) -> None:
        proof = auth.Connector(self._credentials, rank, role)
        self._open(Visit(Link(sock), proof, rank, role, float("inf")), proof.hello)

    def _open(self, visit: Visit, first: AnyMessage) -> None:
        self._visits[visit.link] = visit
        self._selector.register(visit.link, selectors.EVENT_READ)
        if visit.link.is_unix and visit.link.peer_process()[1] != self._credentials.uid:
            raise ConnectError(f"Another user's process listens in place of rank {visit.rank}.", [visit.rank])
        try:
            visit.link.send(first)
        except LinkClosedError as error:
            self._lost(visit.link, str(error))
        else:
            self._watch(visit.link)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            link = Link(sock)
            if link.is_unix and link.peer_process()[1] != self._credentials.uid:
                self._log_once(
                    f"a connection of uid {link.peer_process()[1]} was refused; this job runs as uid "
                    f"{self._credentials.uid}"
                )
                link.close()
                continue
            strangers = [visit for visit in self._visits.values() if visit.accepted]
            if len(strangers) > 2 * self._credentials.size + 64:
                self._drop(strangers[0])
                self._log_once("too many connections that say nothing; the oldest are dropped")
            role = ROLE_MEET if link.is_unix else ROLE_CONTROL
            visit = Visit(link, auth.Acceptor(self._credentials), -1, role, self._clock() + HANDSHAKE_S)
            self._visits[link] = visit
            self._selector.register(link, selectors.EVENT_READ)

    def _drop_slow_strangers(self) -> None:
        now = self._clock()
        for visit in [visit for visit in self._visits.values() if visit.deadline <= now]:
            if visit.proof is not None:
                self._log_once(f"a connection that did not authenticate within {HANDSHAKE_S:g} s was dropped")
                self._drop(visit)
            else:
                visit.deadline = now + HANDSHAKE_S  # one that knocked may stay: its end tells that the rank died

    # ------------------------------------------------------------------------------------------------------ handshake

    def _on_visit(self, visit: Visit, message: AnyMessage) -> None:
        proof = visit.proof
        if isinstance(proof, auth.Connector) and isinstance(message, messages.Challenge):
            visit.link.send(proof.answer(message))
            if visit.link.wants_to_write:
                raise LinkClosedError("it does not read")  # a few dozen bytes always fit
            self._admit(visit, proof.key or b"")
        elif isinstance(proof, auth.Acceptor) and isinstance(message, messages.Hello):
            challenge = proof.challenge(message)
            if (message.role == ROLE_MEET) != visit.link.is_unix:
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

    def _on_knock(self, visit: Visit, rank: int) -> None:
        if not visit.link.is_unix or rank >= self._credentials.rank:
            raise ProtocolError(f"Rank {rank} knocks at rank {self._credentials.rank}; only lower ranks do.")
        visit.proof, visit.rank = None, rank
        self._reach(rank)

    def _admit(self, visit: Visit, key: bytes) -> None:
        """The connection is authenticated: it joins its pair."""
        pair, link = self.pairs[visit.rank], visit.link
        opened_by_higher = visit.accepted == (visit.rank > self._credentials.rank)
        expected = pair.meet is None if visit.role == ROLE_MEET else not pair.same_host and pair.offer is not None
        if not opened_by_higher or not expected or visit.role in pair.links:
            raise AuthenticationError(f"Rank {visit.rank} connected twice, or in the wrong order or direction.")
        del self._visits[link]
        if visit.role != ROLE_MEET:
            self._selector.unregister(link)
            link.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            pair.links[visit.role] = link
            pair.key = key if visit.role == ROLE_CONTROL else pair.key
            return
        self._members[link] = pair
        pair.meet = link
        pair.pid = link.peer_process()[0]
        pair.pidfd = link.peer_pidfd() if pair.same_host else None
        link.reader.allowed = messages.AFTER_AUTHENTICATION
        for knock in [v for v in self._visits.values() if v.proof is None and v.rank == pair.rank and not v.accepted]:
            self._drop(knock)
        own = [self._own.memory_fd, self._own.doorbell_fd] if pair.same_host else []
        link.send(self._own.offer(pair.same_host, pair.pidfd is not None), own)

    # ------------------------------------------------------------------------------------------------- authenticated
    # messages

    def _on_member(self, pair: Pair, message: AnyMessage) -> None:
        if isinstance(message, messages.Offer):
            link = self._meet(pair)
            nonce = pair.take_offer(message, link.take_descriptors(2 if message.shares_memory else 0), self._own)
            if nonce:
                self._send(pair, messages.Seen(nonce))
            elif pair.rank > self._credentials.rank and self._tcp is not None:
                self._send(pair, messages.Address(self._tcp.getsockname()[1], _LOOPBACK))
        elif isinstance(message, messages.Seen):
            if message.nonce != self._own.nonce:
                raise ConnectError(f"{pair.name()} maps other memory than this rank's.", [pair.rank])
            pair.seen = True
        elif isinstance(message, messages.Address):
            self._open_tcp(pair, message)
        elif isinstance(message, messages.Ready):
            pair.ready = True
        elif isinstance(message, messages.Failed):
            culprit = message.culprit if 0 <= message.culprit < self._credentials.size else pair.rank
            raise ConnectError(f"{pair.name()} gave up connecting: {message.reason}", [culprit])

    def _open_tcp(self, pair: Pair, address: messages.Address) -> None:
        if pair.same_host or pair.links or pair.rank > self._credentials.rank:
            raise ConnectError(f"{pair.name()} sent an address that nobody needs.", [pair.rank])
        for role in (ROLE_CONTROL, ROLE_DATA):
            sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            code = sock.connect_ex((address.host, address.port))
            if code not in (0, errno.EINPROGRESS):
                sock.close()
                raise ConnectError(
                    f"{pair.name()} cannot be reached at {address.host} port {address.port}.", [pair.rank]
                )
            self._greet(sock, pair.rank, role)

    def _meet(self, pair: Pair) -> Link:
        if pair.meet is None:
            raise ConnectError(f"{pair.name()} is not connected.", [pair.rank])
        return pair.meet

    def _send(self, pair: Pair, message: AnyMessage) -> None:
        link = self._meet(pair)
        try:
            link.send(message)
        except LinkClosedError as error:
            self._lost(link, str(error))
        else:
            self._watch(link)

    # ------------------------------------------------------------------------------------------------------- failures

    def _lost(self, link: Link, how: str) -> None:
        """The other side of a connection is gone: fatal if it is a rank of ours, unless that has finished."""
        visit, pair = self._visits.get(link), self._members.get(link)
        if pair is not None:
            self._forget(link)
            self._hear_last_words(pair, link)
            if not pair.ready:
                verb = "died" if pair.process_ended(_EXIT_S) else "left"
                raise self._root_cause(f"{pair.name()} {verb} while the job was connecting: {how}.", pair.rank)
        elif visit is not None:
            self._drop(visit)
            if visit.rank < 0:
                self._log_once("a connection was closed before it said who it is")
            elif self.pairs[visit.rank].meet is None and not self._meeting.claim_is_live(visit.rank):
                raise self._died(visit.rank, how)
            elif not visit.accepted and visit.proof is not None:
                raise self._root_cause(f"Rank {visit.rank} refused this rank's connection: {how}.", visit.rank)

    def _hear_last_words(self, pair: Pair, link: Link) -> None:
        """What a peer sent before it closed is still there when a send to it fails."""
        try:
            for message in link.receive():
                if isinstance(message, (messages.Ready, messages.Failed)):
                    self._on_member(pair, message)
        except (LinkClosedError, ProtocolError):
            return

    def _root_cause(self, symptom: str, rank: int) -> ConnectError:
        """The error for a rank that is gone; or for why, if another rank has already told."""
        try:
            for link, pair in self._members.items():
                self._hear_last_words(pair, link)
        except ConnectError as told:
            return told
        return self._deaths.told() or ConnectError(symptom, [rank])

    def _died(self, rank: int, how: str) -> ConnectError:
        pid = self._meeting.claimed_pid(rank)  # a rank that leaves in order takes its claim along
        fact = f"Rank {rank} (pid {pid}) died" if pid else f"Rank {rank} left"
        return self._root_cause(f"{fact} while the job was connecting: {how}.", rank)

    def _refuse(self, link: Link, error: Exception) -> None:
        """The other side misbehaved: strangers are dropped; a connection we opened, or have authenticated, is fatal."""
        visit, pair = self._visits.get(link), self._members.get(link)
        if pair is not None:
            raise ConnectError(f"{pair.name()} does not follow the protocol: {error}", [pair.rank]) from error
        if visit is not None:
            self._drop(visit)
            if not visit.accepted:
                raise ConnectError(f"Rank {visit.rank} cannot be trusted: {error}", [visit.rank]) from error
            self._log_once(f"a connection was dropped: {error}")

    def _too_late(self, timeout_s: float) -> StartTimeoutError:
        size = self._credentials.size
        missing = [rank for rank, pair in self.pairs.items() if pair.meet is None]
        if missing:
            names = ", ".join(map(str, missing))
            plural = "s" if len(missing) > 1 else ""
            fact = f"Rank{plural} {names} of {size} did not connect to rank {self._credentials.rank}"
        else:
            missing = [rank for rank, pair in self.pairs.items() if not (pair.complete and pair.ready)]
            fact = f"Ranks {', '.join(map(str, missing))} of {size} did not finish connecting"
        return StartTimeoutError(
            f"{fact} within {timeout_s:g} s. Launcher: {self._launcher}. Check that every rank calls init() and that "
            "none has failed; HOROVOD_START_TIMEOUT (seconds) allows more time.",
            missing,
        )

    def _tell_others(self, error: BaseException) -> None:
        """Lets the other ranks fail at once and with the reason."""
        ranks = error.ranks if isinstance(error, ConnectError) else ()
        reason = str(error) or type(error).__name__
        self._deaths.tell(ranks[0] if ranks else self._credentials.rank, reason)
        for pair in self.pairs.values():
            if pair.meet is not None:
                try:
                    pair.meet.send(messages.Failed(ranks[0] if ranks else -1, reason))
                except LinkClosedError:
                    continue

    def _log_once(self, text: str) -> None:
        if text not in self._logged and len(self._logged) < 100:
            self._logged.add(text)
            log.warning("rank %d, connecting: %s.", self._credentials.rank, text)

    def _forget(self, link: Link) -> None:
        self._selector.unregister(link)
        del self._members[link]

    def _drop(self, visit: Visit) -> None:
        if self._visits.pop(visit.link, None) is not None:
            self._selector.unregister(visit.link)
            visit.link.close()
