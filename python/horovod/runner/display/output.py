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
import select
import stat
import termios
import time
from io import FileIO
from pathlib import Path
from typing import Final, Optional, TextIO

from horovod._core.errors import InvalidArgumentError
from horovod.runner.display.line_style import LineStyle
from horovod.runner.display.lines import LineSplitter, Piece
from horovod.runner.display.screen import WIPE, WRAP, Screen
from horovod.runner.display.standard_streams import descriptor
from horovod.runner.display.tracebacks import Shortened, TracebackFilter

_TAIL_LINES: Final = 20
_TAIL_LINE_BYTES: Final = 500
_CHUNK_BYTES: Final = 4096  # PIPE_BUF: a pipe that is ready for writing takes this much without blocking
_HIGH_WATER_BYTES: Final = 1 << 20
_FULL_S: Final = 0.01
_PLAIN: Final = LineStyle()
_USUAL_ROWS: Final = 24


class OutputFile:
    """The copy of a stream in a file of its own. It ends with the first error.

    Attributes:
        problem: why it has ended, in words; empty while all is well.

    Args:
        path: of the file.
        more: what is there already stays, of an earlier start of the job.

    Raises:
        InvalidArgumentError: it cannot be written.
    """

    def __init__(self, path: Path, more: bool = False) -> None:
        self._path = path
        self.problem = ""
        try:
            self._file: Optional[FileIO] = FileIO(path, "a" if more else "w", opener=_open_now)
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
        file: gets the bytes as they are; None: nothing does.
        style: of what is written to the launcher's own streams.
    """

    def __init__(self, rank: int, name: str, file: Optional[OutputFile] = None, style: LineStyle = _PLAIN) -> None:
        self.rank = rank
        self.name = name
        self._splitter = LineSplitter(style.prompts)
        self._file = file
        self._style = style
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
        """Takes the next bytes of the rank; returns what the launcher should write.

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
        if not pieces or not self._style.shown:
            return b""
        prefix = self._style.prefix(self.rank, self.name)
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
        typing: a person answers on this terminal, whose lines must stay where they are.
        moves: if it is a terminal, it moves its cursor as it is asked to.

    Attributes:
        problem: why output was lost, in words; empty while all is well.
        on_tty: the text goes to a terminal that moves its cursor.
    """

    def __init__(self, stream: TextIO, name: str = "", typing: bool = False, moves: bool = True) -> None:
        self._stream = stream
        self._name = name
        self.problem = ""
        self._pending = bytearray()
        self._line = b""  # the unfinished line that stands there now
        self._owner: object = None
        self.fd: Optional[int] = descriptor(stream)
        terminal = self.fd is not None and os.isatty(self.fd)
        self.on_tty = terminal and moves
        self._screen = Screen() if self.on_tty and not typing else None
        # A terminal that is ready takes one byte, or more: in blocking mode a write would wait for the rest (Ctrl-S).
        self._own_fd = _reopened(self.fd) if self.fd is not None and terminal else None
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
            owner: whose they are. Only the owner of an unfinished line overwrites it. For others it makes room on a
                terminal, and is ended elsewhere.
        """
        if not data:
            return
        if self._screen:
            self._queue(self._screen.put(data, owner, self._rows()))
            return
        unfinished = data[data.rfind(b"\n") + 1 :]
        if not self._line:
            data = data[owner is not None and data.startswith(b"\r") :]
        elif owner != self._owner or not data.startswith(b"\r"):
            data = (b"\r" + WIPE if self.on_tty else b"\n") + data.removeprefix(b"\r")
        elif data.startswith(b"\r" + self._line):
            data = data[1 + len(self._line) :]  # the same, and on
        self._line = unfinished[unfinished.rfind(b"\r") + 1 :].removeprefix(WIPE)
        self._owner = owner
        self._queue(data)

    def finish_line(self) -> None:
        """Ends an unfinished line: what comes next is not for this outlet to order."""
        if self._screen:
            self._queue(self._screen.finish())
        if self._line:
            self._line = b""
            self._queue(b"\n")

    def close(self) -> None:
        """Ends the use of the stream, which stays open. May be called twice."""
        if self._own_fd is not None:
            os.close(self._own_fd)
            self._own_fd = None

    def settle(self, patience_s: float) -> None:
        """Before others write to the terminal, as a shell does while this process is stopped: the lines under way end,
        and what is queued is written, as far as that goes in this time."""
        if self._screen is None or self.fd is None:
            return
        self.finish_line()
        deadline_s = time.monotonic() + patience_s
        while self._pending and _takes_more(self.fd, deadline_s - time.monotonic()):
            self.write_some()

    def give_up(self) -> None:
        """What is queued is not written any more. A terminal may have got half of it: it wraps lines again."""
        if self._screen is None or self.fd is None or not self._pending:
            return
        self._pending.clear()
        with contextlib.suppress(termios.error, OSError):
            termios.tcflush(self.fd, termios.TCOFLUSH)
            if _takes_more(self.fd, 0):
                os.write(self.fd, WRAP + b"\n")

    def _rows(self) -> int:
        with contextlib.suppress(OSError):
            return os.get_terminal_size(self.fd or 0).lines or _USUAL_ROWS
        return _USUAL_ROWS

    def _queue(self, data: bytes) -> None:
        if self.fd is not None:
            self._pending += data
            return
        try:
            self._stream.write(data.decode("utf-8", errors="replace"))
            self._stream.flush()
        except (OSError, ValueError) as error:
            self.problem = f"{self._name} cannot be written: {error}. Output is lost; the job goes on."

    def write_some(self) -> None:
        """Writes what the stream takes without blocking; call it when the descriptor is ready."""
        if self.fd is None or not self._pending:
            return
        try:
            written = os.write(self.fd if self._own_fd is None else self._own_fd, self._pending[: self._chunk_bytes])
            del self._pending[:written]
        except BlockingIOError:
            # It filled up in between, or a terminal has room for one byte, where the end of a line takes two.
            time.sleep(_FULL_S)
        except OSError as error:
            # The job goes on without it, as it does when a log collector dies. When the reader is gone (say, `| head`)
            # that is nothing to talk about.
            self._pending.clear()
            if error.errno != errno.EPIPE:
                self.problem = f"{self._name} cannot be written: {error.strerror}. Output is lost; the job goes on."


def outlets(stdout: TextIO, stderr: TextIO, typing: bool = False, moves: bool = True) -> dict[str, Outlet]:
    """The launcher's two streams, by name. When both lead to the same place (`2>&1`) they share one outlet.

    Two buffers in front of one file would cut into one another's lines.

    Args:
        stdout, stderr: the streams.
        typing, moves: see `Outlet`.
    """
    out = Outlet(stdout, "standard output", typing, moves)
    err = Outlet(stderr, "standard error", typing, moves)
    if out.fd is not None and err.fd is not None:
        one, two = os.fstat(out.fd), os.fstat(err.fd)
        if (one.st_dev, one.st_ino) == (two.st_dev, two.st_ino):
            err = out
    return {"stdout": out, "stderr": err}


def _reopened(fd: int) -> Optional[int]:
    """The same terminal, with a mode of its own: others, such as the shell, have this one open too."""
    with contextlib.suppress(OSError):  # it belongs to another user (su), or somebody has it for himself
        return os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    return None


def _takes_more(fd: int, patience_s: float) -> bool:
    poller = select.poll()
    poller.register(fd, select.POLLOUT)
    return bool(poller.poll(max(0.0, patience_s) * 1000))


def rank_directory(base: Path, rank: int, size: int) -> Path:
    """`rank.NN` below `base`, padded with zeros to the width of the largest rank."""
    return base / f"rank.{rank:0{len(str(size - 1))}d}"
