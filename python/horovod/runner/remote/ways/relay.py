"""Two byte streams over one authenticated connection, in pieces of which each carries its code.

Used on both sides of an agent that calls its launcher (`by_tcp`, `calling_agent`). It does not look at the bytes.
"""

from __future__ import annotations

import contextlib
import os
import socket
from typing import Callable, Final

from horovod._net.failures import ProtocolError
from horovod._net.handshake.frames.links import Link, LinkClosedError
from horovod._net.handshake.frames.messages import IN_PIECES, MAX_PIECE_BYTES, Piece
from horovod.runner.loop import Loop

_MOST_BYTES: Final = 1 << 18  # that have come and cannot be passed on yet


class Relay:
    """See the head of the file.

    Args:
        loop: that carries them.
        link: to the other side; stays the caller's, whose other side learns by its end that all is over here.
        fds: what is read from the first goes over the link, what comes over it is written to the second. Its own.
        on_end: is called once, before the streams end here, with how the link has ended.

    Attributes:
        sent: the stream that goes out has ended, and all of it is on its way.
        over: both have ended.
    """

    def __init__(self, loop: Loop, link: Link, fds: tuple[int, int], on_end: Callable[[str], None]) -> None:
        self._loop = loop
        self._link = link
        self._read_fd, self._write_fd = fds
        self._on_end = on_end
        self._arrived = bytearray()
        self._reading = True
        self._cut = False
        self._ended = ""
        self.sent = self.over = False
        link.reader.allowed = IN_PIECES
        for fd in fds:
            os.set_blocking(fd, False)
        self._receive()

    def close(self, how: str) -> None:
        """Ends both streams. May be called twice."""
        if not self.over:
            self.over = True
            for fd in (self._link.fileno(), self._read_fd, self._write_fd):
                self._loop.watch(fd, None)
            self._on_end(how)
            os.close(self._read_fd)
            os.close(self._write_fd)

    def _send(self) -> None:
        try:
            data = os.read(self._read_fd, MAX_PIECE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._reading = bool(data)
        try:
            if data and not self._cut:
                self._link.send(Piece(data))
        except LinkClosedError:
            self._cut = True  # what has come until then is read first
        self._wait()

    def _flush(self) -> None:
        try:
            self._link.flush()
        except LinkClosedError:
            self._cut = True
        self._wait()

    def _receive(self) -> None:
        try:
            for message in self._link.receive():
                self._arrived += message.data if isinstance(message, Piece) else b""
                if len(self._arrived) > _MOST_BYTES:
                    break
        except (LinkClosedError, ProtocolError) as error:
            self._ended = str(error)
        self._write()
        self._wait()

    def _pass_on(self) -> None:
        self._write()
        if self._arrived or self._ended:
            self._wait()
        else:
            self._receive()  # messages may be left that had been read already

    def _write(self) -> None:
        try:
            while self._arrived:
                del self._arrived[: os.write(self._write_fd, self._arrived)]
        except BlockingIOError:
            return
        except OSError:
            self._arrived.clear()  # nobody reads here any more

    def _wait(self) -> None:
        """For what can be done next."""
        if self._ended and not self._arrived:
            self.close(self._ended)
            return
        link, busy = self._link, self._link.wants_to_write and not self._cut
        if not self._reading and not busy and not self.sent:
            self.sent = True
            with contextlib.suppress(OSError):  # the other side has gone already
                link.sock.shutdown(socket.SHUT_WR)
        alive, full = not self._ended, len(self._arrived) > _MOST_BYTES
        receive = self._receive if alive and not full else None
        self._loop.watch(link.fileno(), receive, self._flush if alive and busy else None)
        self._loop.watch(self._read_fd, self._send if alive and self._reading and not busy else None)
        self._loop.watch(self._write_fd, None, self._pass_on if self._arrived else None)
