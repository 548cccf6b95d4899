"""The ranks' output: cut into lines, prefixed with the rank, never torn apart.

Used by `launchers`. `RankStream` is pure but for the optional file; `Outlet` writes to one of the launcher's own
streams without ever blocking for long. What cannot be written (a full disk) never ends a job: it is lost, and
`problem` says so.
"""

from __future__ import annotations

import collections
import contextlib
import errno
import os
import stat
import time
from io import FileIO
from pathlib import Path
from typing import Callable, Final, Optional, TextIO

from horovod._core.errors import InvalidArgumentError
from horovod.runner.lines import LineSplitter, Piece
from horovod.runner.tracebacks import Shortened, TracebackFilter

_TAIL_LINES: Final = 20
_TAIL_LINE_BYTES: Final = 500
_CHUNK_BYTES: Final = 4096  # PIPE_BUF: a pipe that is ready for writing takes this much without blocking
_HIGH_WATER_BYTES: Final = 1 << 20
_WIPE: Final = b"\x1b[K"  # what a terminal takes for: empty from here to the end of the line


class OutputFile:
    """The copy of a stream in a file of its own. It ends with the first error.

    Attributes:
        problem: why it has ended, in words; empty while all is well.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.problem = ""
        try:
            self._file: Optional[FileIO] = FileIO(path, "w", opener=_open_now)
        except OSError as error:
            raise InvalidArgumentError(f"--output-filename {path} cannot be written: {error.strerror}.") from error

    def write(self, data: bytes) -> None:
        """Appends all of the bytes, or closes the file."""
        try:
            while data and self._file:
                data = data[self._file.write(data) :]
        except OSError as error:
            self.problem = (
                f"{self._path} cannot be written: {error.strerror}. From here on output is missing there, and "
                "perhaps in the files beside it; the job goes on."
            )
            self.close()

    def close(self) -> None:
        """Ends the copy. May be called twice."""
        if self._file:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None


def _open_now(path: str, flags: int) -> int:
    """Opens a file without waiting: a FIFO that nobody reads is an error (ENXIO)."""
    fd = os.open(path, flags | os.O_NONBLOCK, 0o666)
    os.set_blocking(fd, True)
    return fd


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
        self._file = OutputFile(path) if path else None
        self._clock = clock
        self._tracebacks: Optional[TracebackFilter] = None
        self._in_place = False
        self.tail: collections.deque[bytes] = collections.deque(maxlen=_TAIL_LINES)

    def shorten_tracebacks(self, tracebacks: TracebackFilter) -> None:
        """From here on tracebacks are shortened, though not in the file."""
        self._tracebacks = tracebacks

    @property
    def problem(self) -> str:
        """Why the file lacks output, or an empty text."""
        return self._file.problem if self._file else ""

    def feed(self, data: bytes) -> bytes:
        """Takes the next bytes of the rank; returns what the launcher shall write.

        Text without a newline at its end is the present state of a line, such as a progress bar; one that replaces it
        begins with a carriage return.
        """
        if self._file:
            self._file.write(data)
        return self._dressed(self._splitter.feed(data))

    def finish(self) -> bytes:
        """The stream has ended; returns what is left to write."""
        if self._file:
            self._file.close()
        shown = self._dressed(self._splitter.finish())
        held = self._tracebacks.finish() if self._tracebacks else Shortened([], [])
        self._keep(held.kept)
        return shown + self._prefixed([Piece(line, True) for line in held.shown])

    def _dressed(self, pieces: list[Piece]) -> bytes:
        if self._tracebacks is None:
            self._keep([piece.text for piece in pieces if piece.ended])
            return self._prefixed(pieces)
        shown: list[Piece] = []
        for piece in pieces:
            if piece.ended:
                found = self._tracebacks.feed(piece.text)
                self._keep(found.kept)
                shown += [Piece(line, True) for line in found.shown]
            else:
                shown.append(piece)
        return self._prefixed(shown)

    def _keep(self, lines: list[bytes]) -> None:
        self.tail.extend(line[:_TAIL_LINE_BYTES] for line in lines[-_TAIL_LINES:])

    def _prefixed(self, pieces: list[Piece]) -> bytes:
        if not pieces:
            return b""
        prefix = self._prefix
        if self._clock:
            prefix = time.asctime(time.localtime(self._clock())).encode() + prefix
        words = []
        for text, ended in pieces:
            words += [b"\r" * self._in_place, prefix, text, b"\n" * ended]
            self._in_place = not ended
        return b"".join(words)


class Outlet:
    """One of the launcher's own streams, behind a buffer.

    Args:
        stream: where the text goes at the end. When it has no descriptor (a notebook), it is written at once.
        name: of the stream, for messages.

    Attributes:
        problem: why output was lost, in words; empty while all is well.
        on_tty: the text goes to a terminal.
    """

    def __init__(self, stream: TextIO, name: str = "") -> None:
        self._stream = stream
        self._name = name
        self.problem = ""
        self._pending = bytearray()
        self._line = b""  # the unfinished line that stands there now
        self._owner: object = None
        self.fd: Optional[int] = _descriptor(stream)
        self.on_tty = self.fd is not None and os.isatty(self.fd)
        self._chunk_bytes = _CHUNK_BYTES
        if self.fd is not None:
            with contextlib.suppress(OSError):  # no reader, a full disk: the first write will tell
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

    def put(self, data: bytes, owner: object = None) -> None:
        """Queues bytes: whole lines, or up to the present state of one.

        Args:
            data: see `RankStream.feed`.
            owner: whose they are. Only who has left a line unfinished overwrites it; for others it is wiped off a
                terminal, and ended elsewhere.
        """
        if not data:
            return
        unfinished = data[data.rfind(b"\n") + 1 :]
        if not self._line:
            data = data[owner is not None and data.startswith(b"\r") :]
        elif owner != self._owner or not data.startswith(b"\r"):
            data = (b"\r" + _WIPE if self.on_tty else b"\n") + data.removeprefix(b"\r")
        elif data.startswith(b"\r" + self._line):
            data = data[1 + len(self._line) :]  # the same, and on
        self._line = unfinished[unfinished.rfind(b"\r") + 1 :].removeprefix(_WIPE)
        self._owner = owner
        self._queue(data)

    def finish_line(self) -> None:
        """Ends an unfinished line: what comes next is not for this outlet to order."""
        if self._line:
            self._line = b""
            self._queue(b"\n")

    def _queue(self, data: bytes) -> None:
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
        except OSError as error:
            # The job goes on without it, as it does when a log collector dies. When the reader is gone (say, `| head`)
            # that is nothing to talk about.
            self._pending.clear()
            if error.errno != errno.EPIPE:
                self.problem = f"{self._name} cannot be written: {error.strerror}. Output is lost; the job goes on."


def outlets(stdout: TextIO, stderr: TextIO) -> dict[str, Outlet]:
    """The launcher's two streams, by name. When both lead to the same place (`2>&1`) they share one outlet.

    Two buffers in front of one file would cut into one another's lines.
    """
    out, err = Outlet(stdout, "standard output"), Outlet(stderr, "standard error")
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
