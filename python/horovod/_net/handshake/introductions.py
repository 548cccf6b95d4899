"""The leader of a host, its lowest rank, introduces the ranks there to one another: so they need no connections among
themselves, and a host of n ranks is connected by n - 1 handshakes instead of n (n - 1) / 2.

::

    each rank connects with the leader, as any two ranks do (`pairing`)
    once all have, the leader sends each what it has of the others:   Introduction + descriptors  ->
                                                                                              <-  Taken

What a rank is given is what the leader itself has checked and maps: the same memory, by the same kernel. Used by
connect; it moves no connection.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple, Union

from horovod._net.failures import ProtocolError
from horovod._net.handshake.frames.messages import DESCRIPTORS_EACH, MOST_INTRODUCED, Introduction, Taken
from horovod._net.handshake.members import Members
from horovod._net.handshake.pairing import Pair

# The kernel counts descriptors that have been sent and not received, over all processes of a user, against its limit of
# open files.
_MOST_UNDER_WAY: Final = 256
_LINE: Final = re.compile(r"([0-9]{1,8}) ([0-9]{1,10})")


class Known(NamedTuple):
    """A line of an Introduction: a rank and its process."""

    rank: int
    pid: int


def lines_of(known: Iterable[Known]) -> str:
    """The text of an Introduction."""
    return "\n".join(f"{rank} {pid}" for rank, pid in known)


def parse_lines(text: str) -> list[Known]:
    """What an Introduction says.

    Raises:
        ProtocolError: it is none.
    """
    matches = [_LINE.fullmatch(line) for line in text.split("\n")]
    found = [Known(int(match.group(1)), int(match.group(2))) for match in matches if match is not None]
    if len(found) != len(matches) or len(found) > MOST_INTRODUCED:
        raise ProtocolError(f"An introduction cannot be read: {text[:100]!r}.")
    return found


class Introductions:
    """What one rank does of it: a leader gives, the others take.

    Args:
        rank: of this process.
        leader: of its host.
        pairs: this rank and every other one that it is to know, by rank.
        members: those of them that are connected.
        region_bytes: of everybody's memory.
    """

    def __init__(self, rank: int, leader: int, pairs: dict[int, Pair], members: Members, region_bytes: int) -> None:
        self._leader = leader
        self._pairs = pairs
        self._members = members
        self._region_bytes = region_bytes
        here = [pair for pair in pairs.values() if pair.same_host]
        self._introduced = here if rank == leader and len(here) > 1 else []
        self._begun = False
        self._to_send: list[tuple[Pair, list[Pair]]] = []  # whom, and to whom the others are made known
        self._under_way: dict[int, int] = {}  # rank -> descriptors sent to it, and not known to be taken

    def hear(self, pair: Pair, message: Union[Introduction, Taken]) -> None:
        """Takes what is said of it.

        Raises:
            ProtocolError: from a rank that may not send this.
            ConnectError: what was brought cannot be used.
        """
        if isinstance(message, Taken):
            if self._under_way.pop(pair.rank, None) is None:
                raise ProtocolError("It acknowledges an introduction that it was not sent.")
            self._send_more()
        elif pair.rank != self._leader or not pair.same_host:
            raise ProtocolError("It introduces ranks, and is not the leader of this host.")
        else:
            self._take(pair, message)

    def _take(self, leader: Pair, message: Introduction) -> None:
        known = parse_lines(message.text)
        for rank, pid in known:
            descriptors = self._members.take_descriptors(leader, DESCRIPTORS_EACH)
            pair = self._pairs.get(rank)
            if pair is None:
                raise ProtocolError(f"It introduces rank {rank}, which is not of this host.")
            pair.introduce(pid, descriptors, self._region_bytes)
        self._members.send(leader, Taken())

    def over(self) -> bool:
        """True when this rank has no introduction to make any more; makes those that are due."""
        if self._introduced and not self._begun and all(pair.complete for pair in self._introduced):
            self._begun = True
            self._begin()
        return not self._introduced or self._begun and not self._to_send and not self._under_way

    def _begin(self) -> None:
        for pair in self._introduced:
            others = [other for other in self._introduced if other is not pair]
            parts = [others[i : i + MOST_INTRODUCED] for i in range(0, len(others), MOST_INTRODUCED)]
            self._to_send += [(pair, part) for part in parts]
        self._send_more()

    def _send_more(self) -> None:
        waiting = []
        for pair, others in self._to_send:
            size = DESCRIPTORS_EACH * len(others)
            room = not self._under_way or sum(self._under_way.values()) + size <= _MOST_UNDER_WAY
            if pair.rank in self._under_way or not room:
                waiting.append((pair, others))
                continue
            self._under_way[pair.rank] = size
            descriptors = [fd for other in others for fd in other.descriptors()]
            self._members.send(pair, Introduction(lines_of(Known(o.rank, o.pid) for o in others)), descriptors)
        self._to_send = waiting
