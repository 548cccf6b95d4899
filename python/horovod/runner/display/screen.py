"""Lines under way on a terminal, one for each rank that has any, below those that have ended. Pure.

Used by `output`. Progress bars of several ranks stay one line each: the lines under way are drawn again below whatever
else is written. Where what comes next is typed by a person, this is not used: the terminal would be one line further.
"""

from __future__ import annotations

import re
from typing import Final

WIPE: Final = b"\x1b[K"  # what a terminal takes for: empty from here to the end of the line
_WIPE_BELOW: Final = b"\r\x1b[J"
_NO_WRAP: Final = b"\x1b[?7l"  # a line under way is cut at the edge, so that it stays one
WRAP: Final = b"\x1b[?7h"
_MOVES: Final = re.compile(rb"\x1b\[[0-9;?]*[A-HJKSTfsu]")
_MOST_LINES: Final = 16


class Screen:
    """See the head of the file."""

    def __init__(self) -> None:
        self._under_way: dict[object, bytes] = {}
        self._drawn = 0

    def put(self, data: bytes, owner: object, rows: int) -> bytes:
        """What to write for the next bytes of an owner.

        Args:
            data: whole lines, then perhaps the present state of another, as `RankStream.feed` gives them.
            owner: whose they are; None: the launcher's.
            rows: of the terminal.
        """
        *ended, state = (_last_state(line) for line in data.split(b"\n"))
        if ended or not state:
            self._under_way.pop(owner, None)
        if state:
            self._under_way[owner] = _MOVES.sub(b"", state)
        return self._wiped() + b"".join(line + b"\n" for line in ended) + self._draw(rows)

    def finish(self) -> bytes:
        """What to write when nothing more comes from here: the lines under way stay as they are."""
        self._under_way.clear()
        drawn, self._drawn = self._drawn, 0
        return b"\n" if drawn else b""

    def _wiped(self) -> bytes:
        if not self._drawn:
            return b""
        return (b"\x1b[%dA" % (self._drawn - 1) if self._drawn > 1 else b"") + _WIPE_BELOW

    def _draw(self, rows: int) -> bytes:
        room = max(1, min(_MOST_LINES, rows - 1))
        owners = sorted(self._under_way, key=lambda owner: (owner is None, owner or ()))
        lines = [self._under_way[owner] for owner in owners[:room]]
        self._drawn = len(lines)
        return _NO_WRAP + b"\n".join(lines) + WRAP if lines else b""


def _last_state(line: bytes) -> bytes:
    """What stands there after all carriage returns."""
    return line[line.rfind(b"\r") + 1 :].removeprefix(WIPE)
