"""A rank's bytes, cut into lines, and into the states of a line that a carriage return overwrites. Pure.

Used by `output`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

_MAX_LINE_BYTES: Final = 1 << 16


class Piece(NamedTuple):
    """A line, without its end; or, where not `ended`, what stands in it for now: a progress bar."""

    text: bytes
    ended: bool


class LineSplitter:
    """Cuts a byte stream at newlines and carriage returns.

    Both bytes never occur inside a UTF-8 character, so a character is never cut, except where a line is longer than
    64 KiB; there the cut is moved to a character boundary. An unfinished line waits for its end, unless a carriage
    return is in it: then each of its states is a piece, at once. "\\r\\n" is one end of line.

    Args:
        prompts: no line waits: each state of every line is a piece.
    """

    def __init__(self, prompts: bool = False) -> None:
        self._prompts = prompts
        self._rest = b""  # of the unfinished line; with a carriage return in front when there was one
        self._shown = b""  # what stands there for now

    def feed(self, data: bytes) -> list[Piece]:
        """Takes the next bytes; returns the pieces that are complete now."""
        self._rest += data
        pieces: list[Piece] = []
        if b"\n" in data:
            *whole, self._rest = self._rest.split(b"\n")
            for line in whole:
                *before, last = _states(line)
                pieces += self._news(before)
                pieces.append(Piece(last, True))
                self._shown = b""
        if b"\r" in self._rest or (self._prompts and self._rest):
            states = _states(self._rest)
            pieces += self._news(states)
            self._rest = b"\r" + states[-1] + self._rest[-1:] * self._rest.endswith(b"\r")
        while len(self._rest.strip(b"\r")) > _MAX_LINE_BYTES:
            line = self._rest.lstrip(b"\r")
            cut = _character_boundary(line, _MAX_LINE_BYTES)
            pieces.append(Piece(line[:cut], True))
            self._rest, self._shown = line[cut:], b""
        return pieces

    def finish(self) -> list[Piece]:
        """The last line, when it had no end."""
        rest, self._rest = self._rest, b""
        return [Piece(_states(rest)[-1], True)] if rest.strip(b"\r") else []

    def _news(self, states: list[bytes]) -> list[Piece]:
        pieces = []
        for state in states:
            if state not in (b"", self._shown):
                pieces.append(Piece(state, False))
                self._shown = state
        return pieces


def _states(line: bytes) -> list[bytes]:
    """What carriage returns part; at least one. Empty states, which progress bars begin with, show nothing."""
    return [state for state in line.split(b"\r") if state] or [b""]


def _character_boundary(data: bytes, cut: int) -> int:
    # At most 3 continuation bytes (10xxxxxx) follow the first byte of a character.
    for back in range(4):
        if data[cut - back] & 0xC0 != 0x80:
            return cut - back
    return cut
