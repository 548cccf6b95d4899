"""Python's tracebacks in the ranks' stderr, made short: one that another rank has written already is one line, and
Horovod's own frames are left out where the error is Horovod's, and so the cause is elsewhere.

Used by `output`, unless --verbose is given. Pure. Everything else passes through as it is.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

_BEGIN: Final = b"Traceback (most recent call last):"
_OWN_FRAME: Final = b'  File "' + str(Path(__file__).resolve().parents[2]).encode() + b"/"
# Called by what torch.compile leaves alone, which Horovod's functions are.
_FRAME_OF_COMPILER: Final = re.compile(rb'  File "[^"]*/torch/_dynamo/')
# Errors of Horovod's, also of names and modules that it does not have; and Ctrl-C while it waits.
_OWN_ERROR: Final = re.compile(
    rb"horovod\.|(ModuleNotFoundError|ImportError): horovod\.|AttributeError: module 'horovod|KeyboardInterrupt$"
)
_ADDRESS: Final = re.compile(rb"0x[0-9a-f]+")
_MAX_LINES: Final = 2000  # of one traceback; a longer one is shown as it is
_MAX_KNOWN: Final = 1000


class Shortened(NamedTuple):
    """What has become of some lines: those to show, and those to keep as the rank's last words."""

    shown: list[bytes]
    kept: list[bytes]


class KnownTracebacks:
    """The tracebacks that were shown, by the rank that was first. One for a job."""

    def __init__(self) -> None:
        self._first: dict[bytes, int] = {}

    def first_rank(self, lines: list[bytes], rank: int) -> int:
        """The rank that has written these lines before; `rank` when it is the first."""
        import hashlib  # not before a rank fails

        digest = hashlib.sha256(_ADDRESS.sub(b"", b"\n".join(lines))).digest()
        if len(self._first) >= _MAX_KNOWN:
            return self._first.get(digest, rank)
        return self._first.setdefault(digest, rank)


class TracebackFilter:
    """Shortens the tracebacks of one rank.

    Args:
        rank: whose.
        known: of the job.
    """

    def __init__(self, rank: int, known: KnownTracebacks) -> None:
        self._rank = rank
        self._known = known
        self._block: list[bytes] = []

    def feed(self, line: bytes) -> Shortened:
        """Takes the next line; returns what can be shown now. A traceback is held until its last line is there."""
        if not self._block:
            if line == _BEGIN:
                self._block = [line]
                return Shortened([], [])
            return Shortened([line], [line])
        self._block.append(line)
        if line.startswith(b" ") and len(self._block) < _MAX_LINES:
            return Shortened([], [])
        if line.startswith(b" ") or line == _BEGIN:
            return self.finish()  # too long, or cut off by another one
        block, self._block = self._block, []
        first = self._known.first_rank(block, self._rank)
        short = _without_own_frames(block) if _OWN_ERROR.match(line) else block
        if first == self._rank:
            return Shortened(short, short)
        return Shortened([b"%s (the same traceback as rank %d's)" % (line, first)], short)

    def finish(self) -> Shortened:
        """What was held, when no more comes."""
        block, self._block = self._block, []
        return Shortened(block, block)


def _without_own_frames(block: list[bytes]) -> list[bytes]:
    frames: list[list[bytes]] = [[]]  # first what stands before the first one: nothing
    for line in block[1:-1]:
        if line.startswith(b"  File"):
            frames.append([])
        frames[-1].append(line)
    found: list[bytes] = []  # backwards
    hidden, calls_own = 0, False
    for frame in reversed(frames):
        is_own = bool(frame) and frame[0].startswith(_OWN_FRAME)
        calls_own = is_own or (calls_own and bool(frame) and bool(_FRAME_OF_COMPILER.match(frame[0])))
        hidden += is_own
        if calls_own:
            continue
        if hidden:
            count, them = (b"1 frame", b"it") if hidden == 1 else (b"%d frames" % hidden, b"them")
            found.append(b"  ... %s of Horovod itself; --verbose shows %s" % (count, them))
            hidden = 0
        found += reversed(frame)
    return [block[0], *reversed(found), block[-1]]
