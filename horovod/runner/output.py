"""The ranks' output: cut into lines, prefixed with the rank, never torn apart.

Used by `launchers`. `LineSplitter` and `RankStream` are pure but for the optional file; `Outlet` writes to one of the
launcher's own streams without ever blocking for long.
"""

from __future__ import annotations

import collections
import os
import stat
import time
from pathlib import Path
from typing import Callable, Final, Optional, TextIO

_MAX_LINE_BYTES: Final = 1 << 16
_TAIL_LINES: Final = 20
_TAIL_LINE_BYTES: Final = 500
_CHUNK_BYTES: Final = 4096  # PIPE_BUF: a pipe that is ready for writing takes this much without blocking
_HIGH_WATER_BYTES: Final = 1 << 20


class LineSplitter:
    """Cuts a byte stream at newlines and carriage returns.

    Both bytes never occur inside a UTF-8 character, so a character is never cut, except where a line is longer than
    64 KiB; there the cut is moved to a character boundary. What a carriage return ends is a line of its own; an empty
    one (progress bars begin with it) is dropped. "\\r\\n" is one end of line.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._after_return = False
        self._dropped_empty = False

    def feed(self, data: bytes) -> list[bytes]:
        """Takes the next bytes; returns the lines that are complete now, without their ends."""
        if self._after_return and data:
            self._after_return = False
            if data.startswith(b"\n"):
                data = data[1:] if not self._dropped_empty else data
        self._rest += data
        if b"\n" not in data and b"\r" not in data and len(self._rest) <= _MAX_LINE_BYTES:
            return []
        lines = []
        pieces = self._rest.replace(b"\r\n", b"\n").split(b"\n")
        for index, piece in enumerate(pieces):
            *ended_by_return, last = piece.split(b"\r")
            lines += [part for part in ended_by_return if part]
            if index < len(pieces) - 1:
                lines.append(last)
            else:
                self._after_return = piece.endswith(b"\r")
                self._dropped_empty = self._after_return and not ended_by_return[-1]
                self._rest = last
        while len(self._rest) > _MAX_LINE_BYTES:
            cut = _character_boundary(self._rest, _MAX_LINE_BYTES)
            lines.append(self._rest[:cut])
            self._rest = self._rest[cut:]
        return lines

    def finish(self) -> list[bytes]:
        """The last line, when it had no end."""
        rest, self._rest = self._rest, b""
        return [rest] if rest else []


def _character_boundary(data: bytes, cut: int) -> int:
    # At most 3 continuation bytes (10xxxxxx) follow the first byte of a character.
    for back in range(4):
        if data[cut - back] & 0xC0 != 0x80:
            return cut - back
    return cut


class RankStream:
    """One stream of one rank.

    Args:
        rank: whose.
        name: "stdout" or "stderr".
        path: file that gets the bytes as they are, or None.
        clock: seconds since the epoch, to put the time before each line; None = no time.
    """

    def __init__(
        self, rank: int, name: str, path: Optional[Path] = None, clock: Optional[Callable[[], float]] = None
    ) -> None:
        self.rank = rank
        self.name = name
        self._prefix = f"[{rank}]<{name}>:".encode()
        self._splitter = LineSplitter()
        self._file = open(path, "wb", buffering=0) if path else None  # noqa: SIM115 - closed by finish
        self._clock = clock
        self.tail: collections.deque[bytes] = collections.deque(maxlen=_TAIL_LINES)

    def feed(self, data: bytes) -> bytes:
        """Takes the next bytes of the rank; returns what the launcher shall write."""
        if self._file:
            self._file.write(data)
        return self._dressed(self._splitter.feed(data))

    def finish(self) -> bytes:
        """The stream has ended; returns what is left to write."""
        if self._file:
            self._file.close()
            self._file = None
        return self._dressed(self._splitter.finish())

    def _dressed(self, lines: list[bytes]) -> bytes:
        if not lines:
            return b""
        self.tail.extend(line[:_TAIL_LINE_BYTES] for line in lines[-_TAIL_LINES:])
        prefix = self._prefix
        if self._clock:
            prefix = time.asctime(time.localtime(self._clock())).encode() + prefix
        return b"".join([prefix + line + b"\n" for line in lines])


class Outlet:
    """One of the launcher's own streams, behind a buffer.

    Args:
        stream: where the text goes at the end. When it has no descriptor (a notebook), it is written at once.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._pending = bytearray()
        self.fd: Optional[int] = _descriptor(stream)
        self._chunk_bytes = _CHUNK_BYTES
        if self.fd is not None:
            stream.flush()
            if stat.S_ISREG(os.fstat(self.fd).st_mode):
                self._chunk_bytes = _HIGH_WATER_BYTES

    @property
    def waiting(self) -> bool:
        """There is something to write."""
        return bool(self._pending)

    @property
    def full(self) -> bool:
        """The reader is slow: stop reading from the ranks, so that they wait as they would for a pipe."""
        return len(self._pending) > _HIGH_WATER_BYTES

    def put(self, data: bytes) -> None:
        """Queues bytes (whole lines)."""
        if not data:
            return
        if self.fd is None:
            self._stream.write(data.decode("utf-8", errors="replace"))
            self._stream.flush()
        else:
            self._pending += data

    def write_some(self) -> None:
        """Writes what the stream takes without blocking; call it when the descriptor is ready."""
        if self.fd is None or not self._pending:
            return
        try:
            written = os.write(self.fd, self._pending[: self._chunk_bytes])
            del self._pending[:written]
        except BlockingIOError:
            pass  # somebody else made the descriptor non-blocking, and it filled up in between
        except OSError:
            # The reader is gone (say, `| head`). The job goes on without it, as it does when a log collector dies.
            self._pending.clear()

    def drain(self) -> None:
        """Writes everything, blocking."""
        while self._pending:
            self.write_some()


def outlets(stdout: TextIO, stderr: TextIO) -> dict[str, Outlet]:
    """The launcher's two streams, by name. When both lead to the same place (`2>&1`) they share one outlet.

    Two buffers in front of one file would cut into one another's lines.
    """
    out, err = Outlet(stdout), Outlet(stderr)
    if out.fd is not None and err.fd is not None:
        one, two = os.fstat(out.fd), os.fstat(err.fd)
        if (one.st_dev, one.st_ino) == (two.st_dev, two.st_ino):
            err = out
    return {"stdout": out, "stderr": err}


def _descriptor(stream: TextIO) -> Optional[int]:
    try:
        return stream.fileno()
    except (OSError, AttributeError, ValueError):
        return None


def rank_directory(base: Path, rank: int, size: int) -> Path:
    """`rank.NN` below `base`, padded with zeros to the width of the largest rank."""
    return base / f"rank.{rank:0{len(str(size - 1))}d}"
