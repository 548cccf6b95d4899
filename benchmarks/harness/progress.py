"""Says what is being measured and how long it still takes: in place on a terminal, else a plain line for each row.

Used by `run_all` and `Contest`. It also knows when the time of a group is over, which `Contest` asks before each round.
"""

from __future__ import annotations

import math
import shutil
import time
from typing import Callable, TextIO

_CLEAR = "\r\x1b[K"


def clock_words(seconds: float) -> str:
    """Minutes and seconds."""
    whole = max(0, round(seconds))
    return f"{whole // 60}:{whole % 60:02d}"


class Progress:
    """The line, and the time limit of the group that is being measured.

    Args:
        stream: for the line.
        clock: seconds.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._clock = stream, clock
        self._in_place = stream.isatty()
        self._end_s = self._limit_s = math.inf

    def begin(self, left_s: float, limit_s: float) -> None:
        """A group begins: everything is expected to end in `left_s`, the group has to end in `limit_s`."""
        now = self._clock()
        self._end_s, self._limit_s = now + left_s, now + limit_s

    def over(self) -> bool:
        """Whether the time of the group is used up."""
        return self._clock() >= self._limit_s

    def show(self, what: str) -> None:
        """This is being measured now."""
        left_s = self._end_s - self._clock()
        line = what if math.isinf(left_s) else f"{what} (about {clock_words(left_s)} left)"
        if self._in_place:
            width = shutil.get_terminal_size().columns - 1
            self._stream.write(_CLEAR + line[:width])
        else:
            self._stream.write(line + "\n")
        self._stream.flush()

    def clear(self) -> None:
        """Leaves an empty line for what others write."""
        if self._in_place:
            self._stream.write(_CLEAR)
            self._stream.flush()
