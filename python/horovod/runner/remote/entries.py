"""The entries of a job's board: what they look like, and which of them stand. Pure.

Ranks on different hosts find one another by it: each posts `key=value`, and hears what others have posted. The first
post of a key wins, for the whole job. `Judge` is the launcher's and decides that; `board` repeats on each host what
stands.
"""

from __future__ import annotations

import re
from typing import Final, Optional

MAX_ENTRY_BYTES: Final = 4096
_ENTRY: Final = re.compile(r"([a-z0-9._-]{1,96})=(.*)", re.DOTALL)
_BYTES_PER_RANK: Final = 1 << 16


def key_of(text: str) -> Optional[str]:
    """The key of an entry; None when the text is none."""
    match = _ENTRY.fullmatch(text)
    return match.group(1) if match and len(text.encode("utf-8", "replace")) <= MAX_ENTRY_BYTES else None


class Judge:
    """Which entries stand.

    Args:
        ranks: of the job; they bound what there is room for.
    """

    def __init__(self, ranks: int) -> None:
        self._room = ranks * _BYTES_PER_RANK
        self._known: set[str] = set()
        self.full = False

    def post(self, text: str) -> bool:
        """Whether this entry stands from now on: it is one, its key is new, and there is room."""
        key = key_of(text)
        if key is None or key in self._known:
            return False
        size = len(text.encode("utf-8", "replace"))
        if size > self._room:
            self.full = True
            return False
        self._room -= size
        self._known.add(key)
        return True
