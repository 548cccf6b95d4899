"""`CallNames`: names for the calls of a process group, which have none.

All ranks make the same calls in the same order, so counting would do. But the core repeats an operation fastest whose
name comes again with the same tensor, and a training step makes the same calls again and again. So a name says which
calls came last before: in a loop each call finds the names that it had in earlier rounds. The call itself has no part
in its name. Where ranks disagree about one, it has the same name on all of them, and they learn of it instead of
waiting for one another.

Used by `calls`. Pure.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Hashable
from typing import Final

__all__ = ["TURNS", "CallNames"]

_LOOKS_BACK: Final = 4  # calls
# As many calls in a row have different names, and may be under way at once.
TURNS: Final = 64
# Programs whose tensors have ever new shapes must not fill the memory.
_MOST_KINDS: Final = 4096
_LAST: Final = struct.Struct(f"<{_LOOKS_BACK}I")
_NONE: Final = (0,) * _LOOKS_BACK


class CallNames:
    """Names of the calls of one group; equal on all ranks as long as these make the same calls.

    Args:
        prefix: which no other group of the job has.

    Attributes:
        count: of calls.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self.count = 0
        self._last = _NONE
        self._kinds: dict[Hashable, int] = {}

    def coming(self) -> str:
        """The name that the next call will have."""
        return f"{self._prefix}.{zlib.crc32(_LAST.pack(*self._last)):08x}.{self.count % TURNS}"

    def next(self, call: Hashable) -> str:
        """The name of the next call.

        Args:
            call: what is asked for, with dtype and shape; the same on all ranks, and so is its repr.
        """
        name = self.coming()
        self.count += 1
        kind = self._kinds.get(call)
        if kind is None:
            if len(self._kinds) >= _MOST_KINDS:
                self._kinds.clear()
            kind = self._kinds[call] = zlib.crc32(repr(call).encode())
        self._last = (*self._last[1:], kind)
        return name

    def forget(self) -> None:
        """The ranks have disagreed about the last call: it counts, but has no part in the next names."""
        self._last = _NONE
