"""The entries of a job's board: what they look like, which of them stand, and when they are forgotten. Pure.

Ranks on different hosts find one another by it: each posts `key=value`, and hears what others have posted. The first
post of a key wins, for the whole job. `Arbiter` is the launcher's and decides that; `board` repeats on each host what
stands.

What ranks post to meet (`horovod._net.meeting.board` has the keys) is forgotten once a later attempt of theirs has its
outcome. Ranks that have followed the board since then know it; ranks that come now take part in a later attempt. The
rule looks at nothing but the entries and their order, so the judge and all hosts forget the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Optional

MAX_ENTRY_BYTES: Final = 4096
_ENTRY: Final = re.compile(r"([a-z0-9._-]{1,96})=(.*)", re.DOTALL)
_OF_AN_ATTEMPT: Final = re.compile(r"m\.([a-z0-9]+)\.([0-9]{1,20})\.([0-9]{1,20})\.(.+)")
_FOR_ONE: Final = re.compile(r"only\.([0-9]{1,8})\.")
_BYTES_PER_RANK: Final = 1 << 20  # two attempts to meet take about 150 of them


def key_of(text: str) -> Optional[str]:
    """The key of an entry; None when the text is none."""
    match = _ENTRY.fullmatch(text)
    return match.group(1) if match and size_of(text) <= MAX_ENTRY_BYTES else None


def reader_of(text: str) -> Optional[int]:
    """The one rank that is to hear of an entry `only.<rank>.<...>=<...>`; None: all are. Boards that a rank keeps obey
    it, so that what one rank collects of all is sent once by each."""
    match = _FOR_ONE.match(text)
    return int(match.group(1)) if match else None


def size_of(text: str) -> int:
    """Bytes of an entry."""
    return len(text.encode("utf-8", "replace"))


class Standing:
    """The entries that stand, in their order.

    Attributes:
        bytes: of all of them.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self._texts: dict[str, str] = {}
        self._last_ended: dict[str, tuple[int, int]] = {}  # of those who meet: the attempt

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts.values())

    def takes(self, key: str) -> bool:
        """Whether an entry under this key would be the first there."""
        attempt = _attempt_of(key)
        return key not in self._texts and (attempt is None or attempt[1] >= self._ended(attempt[0]))

    def add(self, text: str) -> bool:
        """Adds an entry, and forgets what it makes needless. False: it is none, or not the first of its key."""
        key = key_of(text)
        if key is None or not self.takes(key):
            return False
        self._texts[key] = text
        self.bytes += size_of(text)
        attempt = _attempt_of(key)
        if attempt is not None and attempt[2] == "outcome":
            self._last_ended[attempt[0]] = attempt[1]
            self._forget_before(attempt[0], attempt[1])
        return True

    def _ended(self, who: str) -> tuple[int, int]:
        return self._last_ended.get(who, (0, 0))

    def _forget_before(self, who: str, last: tuple[int, int]) -> None:
        for key in list(self._texts):
            attempt = _attempt_of(key)
            if attempt is not None and attempt[0] == who and attempt[1] < last:
                self.bytes -= size_of(self._texts.pop(key))


class Arbiter:
    """Which entries stand.

    Args:
        ranks: of the job; they bound what there is room for.
    """

    def __init__(self, ranks: int) -> None:
        self._room = ranks * _BYTES_PER_RANK
        self._standing = Standing()
        self.full = False

    def expect(self, ranks: int) -> None:
        """The job has this many more ranks."""
        self._room += ranks * _BYTES_PER_RANK

    def standing(self) -> list[str]:
        """The entries that stand, in their order."""
        return list(self._standing)

    def post(self, text: str) -> bool:
        """Whether this entry stands from now on: it is one, its key is new, and there is room."""
        if self._standing.bytes + size_of(text) > self._room:
            key = key_of(text)
            self.full = self.full or (key is not None and self._standing.takes(key))
            return False
        return self._standing.add(text)


def _attempt_of(key: str) -> Optional[tuple[str, tuple[int, int], str]]:
    """Of an entry of ranks that meet: who they are, (meeting, attempt), and what the entry is."""
    match = _OF_AN_ATTEMPT.fullmatch(key)
    return (match.group(1), (int(match.group(2)), int(match.group(3))), match.group(4)) if match else None
