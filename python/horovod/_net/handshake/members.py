"""The ranks whose first connection is authenticated, and what is said over it until both can work together.

`pairing` has the order of the messages and checks what they bring; this moves them. A peer that dies is noticed by its
closed connection. Used by the reception, which lets ranks join, and by connect.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from horovod._net.connections import ABSENT, Peer
from horovod._net.failures import ConnectError
from horovod._net.handshake import life, memory
from horovod._net.handshake.blame import Blame
from horovod._net.handshake.consent import Consent
from horovod._net.handshake.door import Door
from horovod._net.handshake.frames import messages
from horovod._net.handshake.frames.links import Link, LinkClosedError
from horovod._net.handshake.frames.messages import AnyMessage
from horovod._net.handshake.frames.watch import Watch
from horovod._net.handshake.pairing import OwnSide, Pair

_EXIT_S = 0.2  # between the end of a dying process's connections and its own


class Members:
    """The pairs of this rank that talk.

    Args:
        pairs: this rank and every other one that it is to be connected with, by rank.
        consent: how they come to know that all are ready, and that all run.
        own: what this rank offers.
        door: where it listens.
        blame: for ranks that are gone.
        watch: wakes the rank.
    """

    def __init__(
        self, pairs: dict[int, Pair], consent: Consent, own: OwnSide, door: Door, blame: Blame, watch: Watch
    ) -> None:
        self._pairs = pairs
        self._consent = consent
        self._own = own
        self._door = door
        self._blame = blame
        self._watch = watch
        self._members: dict[Link, Pair] = {}
        self._informed_ready: set[int] = set()
        self._informed_started: set[int] = set()
        self._clean = False

    def of(self, link: Link) -> Optional[Pair]:
        """The pair of this connection, if it is a member's."""
        return self._members.get(link)

    def join(self, pair: Pair, link: Link) -> None:
        """The connection is authenticated: it joins its pair and carries our offer. Raises LinkClosedError."""
        self._members[link] = pair
        self._watch.add(link)
        pair.meet = link
        pair.pid = link.peer_process()[0] if link.is_unix else 0
        link.reader.allowed = messages.AFTER_AUTHENTICATION
        own = []
        if pair.same_host:
            pidfd = link.peer_pidfd()
            pair.life_fd = ABSENT if pidfd is None else pidfd
            link.most_descriptors = messages.DESCRIPTORS_EACH * messages.MOST_INTRODUCED
            own = [self._own.memory_fd, self._own.doorbell_fd, life.reading_end()]
        link.send(self._own.offer(pair.same_host), own)

    def hear(self, pair: Pair, message: AnyMessage) -> None:
        """Takes what a member says, but for its address, which is the dialler's business.

        Raises:
            ConnectError: the two cannot work together, or it gives up.
        """
        if isinstance(message, messages.Offer):
            self._take_offer(pair, message)
        elif isinstance(message, messages.Seen):
            if message.nonce != self._own.nonce:
                raise ConnectError(f"{pair.name()} does not map this rank's memory.", [pair.rank])
            pair.seen = True
        else:
            self._blame.hear(pair, message)

    def _take_offer(self, pair: Pair, offer: messages.Offer) -> None:
        descriptors = self.take_descriptors(pair, messages.DESCRIPTORS_EACH if offer.shares_memory else 0)
        nonce = pair.take_offer(offer, descriptors, self._own)
        if nonce:
            self.send(pair, messages.Seen(nonce))
        elif pair.rank > self._door.rank:
            address = self._door.address_for(pair)
            if address is not None:
                self.send(pair, messages.Address(address[1], address[0]))

    def take_descriptors(self, pair: Pair, n: int) -> list[int]:
        """The next n that a member has sent; the caller owns them. Raises ProtocolError: there are fewer."""
        return _meet(pair).take_descriptors(n)

    def send(self, pair: Pair, message: AnyMessage, descriptors: Sequence[int] = ()) -> None:
        """Sends it to a member; one that has finished and gone needs it no more. As `Link.send`."""
        link = _meet(pair)
        try:
            link.send(message, descriptors)
        except LinkClosedError as error:
            self.lost(link, error)
        else:
            self._watch.update(link)

    def lost(self, link: Link, how: LinkClosedError) -> None:
        """The other side of a member's connection is gone.

        Raises:
            ConnectError: it had not started.
        """
        pair = self._members.get(link)
        if pair is not None:
            self._forget(link)
            self._blame.hear_last_words(pair, link)
            if not pair.started:
                if how.silent:
                    raise self._blame.no_answer(pair.rank, str(how))
                verb = "died" if pair.process_ended(_EXIT_S) else "left"
                raise self._blame.root_cause(f"{pair.name()} {verb} while the job was connecting: {how}.", pair.rank)

    def finished(self) -> bool:
        """True when all ranks of the job are connected as they are to be; tells others when the time has come."""
        if not all(pair.complete for pair in self._pairs.values()):
            return False
        if not self._clean and self._own.memory_fd >= 0:
            memory.clear_nonce(self._own.memory_fd)
        self._clean = True
        heard = {rank for rank, pair in self._pairs.items() if pair.ready}
        return self._all_know(heard, self._informed_ready, messages.Ready())

    def take_peers(self) -> list[Peer]:
        """When all have finished: the descriptors, ascending by rank; the caller owns them."""
        return [self._pairs[rank].finish() for rank in sorted(self._pairs)]

    def started(self) -> bool:
        """True when the engines of all ranks run, as this one's does; tells others when the time has come."""
        heard = {rank for rank, pair in self._pairs.items() if pair.started}
        return self._all_know(heard, self._informed_started, messages.Started())

    def _all_know(self, heard: set[int], informed: set[int], news: AnyMessage) -> bool:
        for rank in sorted(self._consent.due(heard) - informed):
            informed.add(rank)
            self.send(self._pairs[rank], news)
        return self._consent.complete(heard) and not any(link.wants_to_write for link in self._members)

    def close(self) -> None:
        """Closes what was not taken. May be called twice."""
        for pair in self._pairs.values():
            pair.close()

    def _forget(self, link: Link) -> None:
        self._watch.remove(link)
        del self._members[link]


def _meet(pair: Pair) -> Link:
    if pair.meet is None:
        raise ConnectError(f"{pair.name()} is not connected.", [pair.rank])
    return pair.meet
