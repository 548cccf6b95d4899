"""What the agent of one host has sent of its ranks' dumps, round by round. Pure.

Used by `link`, which fills it, and by `hosts_dumps`, which empties it. It holds one dump of each rank at most.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Optional

from horovod._net.failures import ProtocolError


class Answer(NamedTuple):
    """A complete round of one host.

    Attributes:
        round: which of those that the launcher asked for; 0: the ranks have dumped by themselves.
        texts: dumps as JSON, by rank. Nothing has looked into them yet.
        silent: why the other ranks have given none.
    """

    round: int
    texts: dict[int, bytes]
    silent: dict[int, str]


class DumpInbox:
    """See the head of the file.

    Args:
        ranks: of the host.
    """

    def __init__(self, ranks: Iterable[int]) -> None:
        self._ranks = frozenset(ranks)
        self._texts: dict[int, bytes] = {}
        self._silent: dict[int, str] = {}
        self._answer: Optional[Answer] = None

    def dump(self, rank: int, text: bytes) -> None:
        """The dump of a rank.

        Raises:
            ProtocolError: the rank is not on this host.
        """
        if rank not in self._ranks:
            raise ProtocolError("A dump of an unknown rank.")
        self._texts[rank] = text

    def silent(self, rank: int, why: str) -> None:
        """A rank has given none."""
        self._silent[rank] = why

    def collected(self, number: int) -> None:
        """That was all of this round."""
        self._answer = Answer(number, self._texts, self._silent)
        self._texts, self._silent = {}, {}

    def take(self) -> Optional[Answer]:
        """The last round that is complete, once."""
        answer, self._answer = self._answer, None
        return answer
