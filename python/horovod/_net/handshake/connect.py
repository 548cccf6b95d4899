"""Connects one rank with the others of its job, all or those that the negotiation needs: the loop over the parts that
do it.

A pair of ranks has one connection, opened by the higher rank: a Unix socket on one host (the higher rank knocks at
nobody; a lower rank that comes later knocks at the higher ones, so nobody polls the directory), TCP across hosts. Over
it, once mutually authenticated, `pairing` exchanges what the two need. Ranks of one host need none but to its leader,
who introduces them to one another. The parts, each of which knows only those before it::

    watch      what wakes this rank
    blame      which rank is at fault, and reporting it
    visits     connections that are not (yet) part of a pair
    door       where others come in; strangers go out again
    dialler    the connections that this rank opens
    members    the ranks that are authenticated
    introductions  what the leader of a host gives the ranks there of one another
    reception  what visits say until they join the members

Used by bootstrap. One thread, one selector; the clock is injected.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from horovod._net.clusters.placement import Placement
from horovod._net.connections import Peer
from horovod._net.failures import AuthenticationError, ConnectError, ProtocolError
from horovod._net.handshake.blame import Blame
from horovod._net.handshake.consent import Consent
from horovod._net.handshake.dialler import Dialler
from horovod._net.handshake.door import Door
from horovod._net.handshake.frames import auth, messages
from horovod._net.handshake.frames.links import Link, LinkClosedError
from horovod._net.handshake.frames.messages import ROLE_CONTROL, AnyMessage
from horovod._net.handshake.frames.watch import Source, Watch
from horovod._net.handshake.introductions import Introductions
from horovod._net.handshake.members import Members
from horovod._net.handshake.pairing import OwnSide, Pair
from horovod._net.handshake.reception import Reception
from horovod._net.handshake.roll_call import World
from horovod._net.handshake.strangers import Report
from horovod._net.handshake.visits import Visits
from horovod._net.meeting.directory import Meeting


class Mesh:
    """The connections of one rank while they are being made."""

    def __init__(
        self,
        meeting: Meeting,
        credentials: auth.Credentials,
        own: OwnSide,
        world: World,
        placement: Placement,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            meeting: joined.
            credentials: of this rank; its `uid` is the only one that peers may have.
            own: what this rank offers.
            placement: of this rank.
            world: where all ranks are; it stays the caller's.
            clock: seconds.
        """
        rank = credentials.rank
        self.pairs = {r: _pair(rank, r, world) for r in world.neighbours(rank)}
        self._meeting = meeting
        self._world = world
        self._credentials = credentials
        self._clock = clock
        self._watch = Watch()
        self._report = Report(f"rank {rank}")
        self._blame = Blame(meeting, placement, self.pairs, clock())
        self._visits = Visits(self._watch, self._report, self._blame)
        self._door = Door(credentials, self._visits, self._report, self._watch, clock)
        self._dialler = Dialler(meeting, credentials, self.pairs, self._visits, self._blame, clock)
        children = [each for each in self.pairs if world.above(each) == rank]
        consent = Consent(world.above(rank), children, [r for r, pair in self.pairs.items() if not pair.by_leader])
        self._members = Members(self.pairs, consent, own, self._door, self._blame, self._watch)
        self._introductions = Introductions(rank, world.leader(rank), self.pairs, self._members, own.region_bytes)
        self._reception = Reception(rank, self.pairs, self._visits, self._members, self._dialler)

    def run(self, timeout_s: float) -> None:
        """Returns when all ranks of the job are connected with their neighbours. Collective.

        Raises:
            StartTimeoutError: ranks are missing.
            ConnectError: a rank failed.
        """
        self._start()
        self._work_until(lambda: self._introductions.over() and self._members.finished(), timeout_s)
        self._blame.agree()

    def confirm(self, timeout_s: float) -> None:
        """After `take_peers`, when this rank's engine runs: returns when those of all ranks do. Collective.

        Raises:
            StartTimeoutError: one takes too long.
            ConnectError: one has failed to start.
        """
        self._work_until(self._members.started, timeout_s)

    def give_up(self, error: BaseException) -> None:
        """Tells the others why this rank cannot go on."""
        self._blame.tell_others(error)

    def _work_until(self, finished: Callable[[], bool], timeout_s: float) -> None:
        deadline = self._clock() + timeout_s
        while not finished():
            now = self._clock()
            if now >= deadline:
                raise self._blame.too_late(timeout_s)
            for source in self._watch.wait(max(0.0, min(self._next_wake_s(), deadline) - now)):
                self._serve(source)
            self._door.drop_slow_strangers()
            self._dialler.come_again()
            self._blame.look_for_the_dead(self._clock())

    def take_peers(self) -> list[Peer]:
        """After `run`: the descriptors, ascending by rank; the caller owns them. Connections that come to the listener
        for other hosts from now on are the caller's, too: they come from ranks whose engine runs already."""
        self._door.leave_others()
        return self._members.take_peers()

    def close(self) -> None:
        """Closes everything that is still owned. May be called twice."""
        self._report.close()
        self._visits.close()
        self._members.close()
        self._door.close()
        self._watch.close()

    def _start(self) -> None:
        by_loopback = any(not pair.same_host and not pair.across for pair in self.pairs.values())
        self._door.open(self._meeting.listener, self._world.listener, by_loopback)
        here = [rank for rank in self._meeting.listening_ranks() if not self.pairs[rank].by_leader]
        elsewhere = [rank for rank, pair in self.pairs.items() if pair.across]
        for rank in (*here, *elsewhere):
            self._dialler.reach(rank)

    def _next_wake_s(self) -> float:
        return min(self._door.next_s(), self._dialler.next_s(), self._blame.next_look_s)

    def _serve(self, source: Source) -> None:
        if not isinstance(source, Link):
            for link in self._door.accept(source):
                self._serve(link)
            return
        try:
            source.flush()
            self._read(source)
        except LinkClosedError as error:
            self._lost(source, error)
        except (ProtocolError, AuthenticationError) as error:
            self._refuse(source, error)
        else:
            self._watch.update(source)

    def _read(self, link: Link) -> None:
        for message in link.receive():
            visit, pair = self._visits.of(link), self._members.of(link)
            if visit is not None:
                self._reception.hear(visit, message)
            elif pair is not None:
                self._on_member(pair, message)
            else:
                return  # dropped, or handed to its pair, by the message before

    def _on_member(self, pair: Pair, message: AnyMessage) -> None:
        if isinstance(message, messages.Address):
            self._dialler.open_tcp(pair, message)
        elif isinstance(message, (messages.Introduction, messages.Taken)):
            self._introductions.hear(pair, message)
        else:
            self._members.hear(pair, message)

    def _lost(self, link: Link, how: LinkClosedError) -> None:
        """The other side of a connection is gone: fatal if it is a rank of ours, unless that has finished."""
        visit = self._visits.of(link)
        if visit is not None:
            self._dialler.lost(visit, how)
        else:
            self._members.lost(link, how)

    def _refuse(self, link: Link, error: Exception) -> None:
        """The other side misbehaved: strangers are dropped; a connection we opened, or have authenticated, is fatal."""
        visit, pair = self._visits.of(link), self._members.of(link)
        if pair is not None:
            raise ConnectError(f"{pair.name()} does not follow the protocol: {error}", [pair.rank]) from error
        if visit is not None:
            self._visits.refuse(visit, error)


def _pair(own_rank: int, rank: int, world: World) -> Pair:
    if not world.across(own_rank, rank):
        return Pair(rank, same_host=world.share, by_leader=world.share and world.leader(rank) not in (own_rank, rank))
    card = world.cards[rank]
    pair = Pair(rank, same_host=False, across=True, address=(card.address, card.port), host=card.host)
    if world.parents is not None:
        pair.roles = (ROLE_CONTROL,)  # data connections are opened when they are needed
    return pair
