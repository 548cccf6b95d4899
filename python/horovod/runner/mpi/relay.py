"""What mpirun writes, on its way to the launcher's streams: it has the ranks in front already. Pure.

Used by `launchers.following`. Has the face of `output.RankStream`, and like that it gives whole lines on: mpirun may
write a prefix and what follows it one after the other.
"""

from __future__ import annotations

from typing import Final

_LONGEST: Final = 1 << 16  # a line that is longer is cut


class Relay:
    """One of mpirun's two streams.

    Attributes:
        rank: of the crew whose only member mpirun is.
        name: of the stream.
        problem: never any.
    """

    def __init__(self, name: str) -> None:
        self.rank = 0
        self.name = name
        self.problem = ""
        self._begun = b""

    def feed(self, data: bytes) -> bytes:
        """Takes the next bytes; returns the lines that they end."""
        lines, end, begun = (self._begun + data).rpartition(b"\n")
        if len(begun) >= _LONGEST:
            lines, end, begun = lines + end + begun, b"\n", b""
        self._begun = begun
        return lines + end

    def finish(self) -> bytes:
        """The stream has ended; returns what is left of it."""
        left, self._begun = self._begun, b""
        return left + b"\n" if left else b""
