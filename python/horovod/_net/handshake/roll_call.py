"""Where all ranks of a job on several hosts are, before any two of them are connected: each shows a card on the board.

Used by bootstrap. A card is `<port> <address> <host>`: where the rank listens for other hosts, and what the launcher
calls its own host. Ranks whose hosts have the same name met in one directory and may share memory. A fourth word,
`tree`, wants few connections; rank 0's card decides that for all.
"""

from __future__ import annotations

import ipaddress
import re
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Optional

from horovod._net import resources
from horovod._net.clusters.placement import Placement
from horovod._net.connections import Reach
from horovod._net.failures import ConnectError, StartTimeoutError
from horovod._net.meeting.board import Attempt
from horovod._net.meeting.deaths import Deaths

_LOOK_S: Final = 0.1  # how often to look for ranks that end before they show a card
_BACKLOG: Final = 4096
_CARD: Final = re.compile(r"([0-9]{1,5}) ([0-9A-Fa-f:.]+(?:%[A-Za-z0-9_.-]+)?) (\S{1,255})( tree)?")


class Card(NamedTuple):
    """Where a rank is."""

    port: int
    address: str
    host: str
    few: bool = False

    def text(self) -> str:
        """As it stands on the board."""
        return f"{self.port} {self.address} {self.host}{' tree' if self.few else ''}"


def parse_card(rank: int, text: str) -> Card:
    """A card from the board.

    Raises:
        ConnectError: it is none.
    """
    match = _CARD.fullmatch(text)
    if match is not None and 0 < int(match.group(1)) < 1 << 16:
        try:
            ipaddress.ip_address(match.group(2).partition("%")[0])
            return Card(int(match.group(1)), match.group(2), match.group(3), match.group(4) is not None)
        except ValueError:
            pass
    raise ConnectError(f"Rank {rank} shows a card that cannot be read: {text[:100]!r}.", [rank])


@dataclass
class World:
    """Where the ranks of a job are, as one of them sees it.

    Attributes:
        host_of_rank: numbers of hosts, in the order of their first ranks.
        cards: of all ranks; empty where the job has one host.
        share: ranks of one host share memory.
        listener: where this rank listens for other hosts; None where there are none. Its owner closes it.
        parents: of each rank, in a tree along which ranks of different hosts are connected; None: all with all.
    """

    host_of_rank: list[int]
    cards: list[Card]
    share: bool = True
    listener: Optional[socket.socket] = None
    parents: Optional[Sequence[int]] = None

    def neighbours(self, rank: int) -> list[int]:
        """The ranks that this one is to know, ascending: of its host, and all others or those of the tree."""
        others = (other for other in range(len(self.host_of_rank)) if other != rank)
        parents = self.parents
        if parents is None:
            return list(others)
        return [o for o in others if not self.across(o, rank) or parents[o] == rank or parents[rank] == o]

    @property
    def few(self) -> bool:
        """The ranks are to have few connections, as rank 0 wants it."""
        return bool(self.cards) and self.cards[0].few

    def take_reach(self, rank: int) -> Optional[Reach]:
        """How data connections are opened later, if there are to be any; its owner closes the listener."""
        if self.parents is None or self.listener is None:
            return None
        listener, self.listener = self.listener, None
        elsewhere = {r: (card.address, card.port) for r, card in enumerate(self.cards) if self.across(r, rank)}
        return Reach(listener, elsewhere)

    def leader(self, rank: int) -> int:
        """The lowest rank of this one's host."""
        return self.host_of_rank.index(self.host_of_rank[rank])

    def above(self, rank: int) -> Optional[int]:
        """The rank that this one notifies when it is connected; None for rank 0. Both are connected."""
        leader = self.leader(rank)
        if rank != leader:
            return leader
        if rank == 0:
            return None
        return self.parents[rank] if self.parents is not None else 0

    def across(self, a: int, b: int) -> bool:
        """The two ranks are on different hosts."""
        return self.host_of_rank[a] != self.host_of_rank[b]

    def close(self) -> None:
        """Closes the listener. May be called twice."""
        if self.listener is not None:
            self.listener.close()
            self.listener = None


def one_host(size: int, share: bool) -> World:
    """The world of a job on one host."""
    return World([0] * size, [], share)


def listen(address: str, port: int = 0) -> socket.socket:
    """A listening socket at one address of this host, never at all of them.

    Args:
        address: in numbers.
        port: there; 0: one that is free.

    Raises:
        ConnectError: the address is not this host's, or nobody may listen there.
    """
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(
            address, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST | socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind | socket.SOCK_NONBLOCK, protocol)
    except OSError as error:
        raise ConnectError(f"{address!r} is not an address of a host: {error.strerror}.") from error
    try:
        if port:  # connections of an earlier job to it may not have been forgotten yet
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(where)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        where_to = f"{address} port {port}" if port else address
        raise resources.failure(
            f"This rank cannot listen for other hosts at {where_to}, the address by which they are to reach this one",
            error,
        ) from error
    return listener


def call_the_roll(
    attempt: Attempt, placement: Placement, address: str, few: bool, deaths: Deaths, deadline: float
) -> World:
    """Shows this rank's card, and waits for those of all others. Collective.

    Args:
        attempt: to meet; joined.
        placement: of this rank.
        address: of this host, for other hosts.
        few: this rank would have few connections.
        deaths: of ranks that never come.
        deadline: monotonic seconds.

    Raises:
        ConnectError: a rank has ended or given up.
        StartTimeoutError: ranks are missing; names them.
    """
    listener = listen(address)
    try:
        attempt.show_card(placement.rank, Card(listener.getsockname()[1], address, placement.hostname, few).text())
        cards = _wait_for_all(attempt, placement, deaths, deadline)
    except BaseException:
        listener.close()
        raise
    hosts: dict[str, int] = {}
    numbers = [hosts.setdefault(card.host, len(hosts)) for card in cards]
    return World(numbers, cards, listener=listener)


def _wait_for_all(attempt: Attempt, placement: Placement, deaths: Deaths, deadline: float) -> list[Card]:
    begun = time.monotonic()
    cards: dict[int, Card] = {}
    missing = list(range(placement.size))
    while True:
        for rank in missing:
            text = attempt.card(rank)
            if text is not None:
                cards[rank] = parse_card(rank, text)
        missing = [rank for rank in missing if rank not in cards]
        if not missing:
            return [cards[rank] for rank in range(placement.size)]
        deaths.check(missing)
        now = time.monotonic()
        if now >= deadline:
            raise StartTimeoutError(
                f"Rank{'s' if len(missing) > 1 else ''} {', '.join(map(str, missing))} of {placement.size} did not "
                f"show up within {deadline - begun:.3g} s. Launcher: {placement.launcher}. "
                "Check that every rank calls hvd.init() and that none has failed; "
                "HOROVOD_START_TIMEOUT (seconds) allows more time.",
                missing,
            )
        attempt.board.wait(min(_LOOK_S, deadline - now))
