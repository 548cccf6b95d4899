"""One connection while ranks connect: a non-blocking socket that carries frames, and descriptors on Unix sockets.

Used by connect and its parts: a link never waits. It frames, queues and closes; it decides nothing and
authenticates nobody.
"""

from __future__ import annotations

import array
import errno
import os
import socket
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Optional

from horovod._net.failures import ProtocolError
from horovod._net.handshake.frames.messages import DESCRIPTORS_EACH, AnyMessage, Codes, FrameReader, frame
from horovod._net.identity import peer_credentials

_READ_BYTES = 16384
# As plain numbers: arithmetic on enumerations was a twentieth of connecting 64 ranks.
_CLOSE_ON_EXEC = int(socket.MSG_CMSG_CLOEXEC)
_TRUNCATED = int(socket.MSG_CTRUNC)
_NO_SIGNAL = int(socket.MSG_NOSIGNAL)
_NO_ANSWER = (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH)
_SO_PEERPIDFD = 77  # Linux 6.5; Python has no name for it


class LinkClosedError(Exception):
    """The other side closed the connection, or it broke; the text says how.

    Attributes:
        silent: nothing gets through to the other host, or back; its process may well live.
        refused: nobody listens there.
    """

    def __init__(self, how: str, silent: bool = False, refused: bool = False) -> None:
        super().__init__(how)
        self.silent = silent
        self.refused = refused


class Link:
    """A framed connection.

    Attributes:
        is_unix: True for a Unix socket, which knows its peer's process.
        most_descriptors: that one message may bring.
        queued_bytes: that have not left.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.is_unix = sock.family == socket.AF_UNIX
        self.reader = FrameReader()
        self.most_descriptors = DESCRIPTORS_EACH
        self.exact = False  # reads nothing beyond a message: what follows is somebody else's
        self.in_turns = False  # reads once, however much has come: others get their turn
        self._outgoing: deque[tuple[bytes, Sequence[int]]] = deque()
        self._received: deque[int] = deque()
        self.queued_bytes = 0

    def fileno(self) -> int:
        """For the selector."""
        return self.sock.fileno()

    @property
    def wants_to_write(self) -> bool:
        """True while queued frames have not left."""
        return bool(self._outgoing)

    def protect(self, codes: Codes) -> None:
        """From now on every frame, sent or received, carries its code."""
        self.reader.codes = codes

    def send(self, message: AnyMessage, descriptors: Sequence[int] = ()) -> None:
        """Queues a message; the descriptors stay the caller's and must be open until it has left. Raises
        LinkClosedError as `flush`.
        """
        data = frame(message)
        if self.reader.codes is not None:
            data += self.reader.codes.of_next_sent(data)
        self._outgoing.append((data, descriptors))
        self.queued_bytes += len(data)
        self.flush()

    def flush(self) -> None:
        """Sends what the kernel takes.

        Raises:
            LinkClosedError: the connection is gone.
        """
        while self._outgoing:
            data, descriptors = self._outgoing[0]
            ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
            try:
                sent = self.sock.sendmsg([data], ancillary, _NO_SIGNAL)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                raise broken(error) from error
            self.queued_bytes -= sent
            if sent == len(data):
                self._outgoing.popleft()
            else:
                self._outgoing[0] = (data[sent:], ())  # descriptors go with the first byte

    def receive(self) -> Iterator[AnyMessage]:
        """The messages that have arrived, until there is none. A caller that stops before may go on later.

        Raises:
            LinkClosedError: end of the stream.
            ProtocolError: bytes that are no frames, or more descriptors than any message has.
        """
        room = socket.CMSG_SPACE(self.most_descriptors * 4)
        while (message := self.reader.next()) is not None:
            yield message
        while True:
            try:
                most = self.reader.missing_bytes if self.exact else _READ_BYTES
                data, ancillary, flags, _ = self.sock.recvmsg(most, room, _CLOSE_ON_EXEC)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                raise broken(error) from error
            self._keep_descriptors(ancillary)
            if flags & _TRUNCATED or len(self._received) > 2 * self.most_descriptors:
                raise ProtocolError("More descriptors arrived than any message carries.")
            if not data:
                raise LinkClosedError("it closed the connection")
            self.reader.feed(data)
            while (message := self.reader.next()) is not None:
                yield message
            if self.in_turns or len(data) < _READ_BYTES and not ancillary and not self.exact:
                return

    def _keep_descriptors(self, ancillary: list[tuple[int, int, bytes]]) -> None:
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds = array.array("i")
                fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
                self._received.extend(fds)

    def take_descriptors(self, n: int) -> list[int]:
        """The first n descriptors that arrived; the caller owns them.

        Raises:
            ProtocolError: fewer arrived.
        """
        if len(self._received) < n:
            raise ProtocolError(f"{n} descriptors were announced, {len(self._received)} arrived.")
        return [self._received.popleft() for _ in range(n)]

    def peer_process(self) -> tuple[int, int]:
        """(pid, uid) of the process at the other end of a Unix socket; pid 0 when it is in a foreign pid namespace."""
        return peer_credentials(self.sock)

    def peer_pidfd(self) -> Optional[int]:
        """A descriptor that becomes readable when the process at the other end of a Unix socket ends; None where
        impossible.
        """
        try:
            return int(self.sock.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD))
        except OSError:
            pid = self.peer_process()[0]
        if pid <= 0 or not hasattr(os, "pidfd_open"):
            return None
        try:
            return os.pidfd_open(pid)
        except OSError:
            return None

    def detach(self) -> int:
        """The bare descriptor, for the core; the link is over."""
        return self.sock.detach()

    def close(self) -> None:
        """Closes the connection and every descriptor that nobody took."""
        while self._received:
            os.close(self._received.popleft())
        self.sock.close()


def broken(error: OSError) -> LinkClosedError:
    """What this error says of a connection."""
    return LinkClosedError(
        error.strerror or str(error), error.errno in _NO_ANSWER, refused=error.errno == errno.ECONNREFUSED
    )
