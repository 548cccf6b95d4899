"""`CallNames`: names for the calls of a process group, which have none.

All ranks make the same calls in the same order, so counting would do. But the core repeats an operation fastest whose
name comes again with the same tensor, and a training step makes the same calls again and again. So a name says which
calls came before: the last few of them choose a number, and in a loop each call finds the number that it had the last
time. The call itself has no part in it. Where ranks disagree about one, it has the same name on all of them, and they
learn of it instead of waiting for one another.

Used by `group`. Pure.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

__all__ = ["CallNames"]

_LOOKS_BACK: Final = 4  # calls
# Calls under one number take turns with so many names, so that as many may be under way.
_TURNS: Final = 16
# Programs whose tensors have ever new shapes must not fill the memory.
_MOST: Final = 4096


class CallNames:
    """Names of the calls of one group; equal on all ranks as long as these make the same calls.

    Args:
        prefix: which no other group of the job has.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._kinds: dict[Hashable, int] = {}
        self._last: tuple[int, ...] = ()
        self._found: dict[tuple[int, ...], list[int]] = {}  # calls before -> number, uses

    def next(self, call: Hashable) -> str:
        """The name of the next call.

        Args:
            call: what is asked for, with dtype and shape; the same on all ranks.
        """
        entry = self._found.get(self._last)
        if entry is None:
            if len(self._found) >= _MOST:
                self._found.clear()
            entry = self._found[self._last] = [len(self._found), 0]
        number, uses = entry
        entry[1] = (uses + 1) % _TURNS
        if len(self._kinds) >= _MOST:
            self._kinds.clear()
        kind = self._kinds.setdefault(call, len(self._kinds))
        self._last = (*self._last[1 - _LOOKS_BACK :], kind)
        return f"{self._prefix}.{number}.{uses}"
