"""The board of a job that the launcher keeps, over the Unix socket that it, or its agent on this host, listens on.

Entries come by themselves: all that stand when this rank connects, a Ready, then each new one. Used by bootstrap. The
socket lies in the launcher's private directory, and its other end must belong to this user.
"""

from __future__ import annotations

import os
import select
import socket
import time
from typing import Optional

from horovod._net.failures import ConnectError, MeetingError, ProtocolError
from horovod._net.handshake.links import Link, LinkClosedError
from horovod._net.handshake.messages import ON_A_BOARD, Post

SOCKET_NAME = "board"
_ENDED = "The launcher has ended."


class BoardLink:
    """See the head of the file, and `meeting.board.Board`.

    Args:
        directory: of the launcher.
        deadline: monotonic seconds, for the first entries to come.

    Raises:
        MeetingError: nobody listens there, or another user does.
        ConnectError: the launcher does not answer.
    """

    def __init__(self, directory: str, deadline: float) -> None:
        self._complete = False
        self._order: dict[str, int] = {}
        self._entries: dict[str, str] = {}
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._link = Link(sock)
        try:
            sock.setblocking(True)
            _connect(sock, directory)
            sock.setblocking(False)
            if self._link.peer_process()[1] != os.geteuid():
                raise MeetingError(f"Another user listens at {directory}/{SOCKET_NAME}; end that process.")
            self._link.reader.allowed = ON_A_BOARD
            self._read_all_that_stands(deadline)
        except BaseException:
            sock.close()
            raise

    def post(self, key: str, value: str) -> None:
        """See `Board`."""
        try:
            self._link.send(Post(f"{key}={value}"))
        except LinkClosedError as error:
            raise ConnectError(_ENDED) from error

    def get(self, key: str) -> Optional[str]:
        """See `Board`."""
        self._take()
        return self._entries.get(key)

    def before(self, key: str, other: str) -> bool:
        """See `Board`."""
        return key in self._order and other in self._order and self._order[key] < self._order[other]

    def wait(self, seconds: float) -> None:
        """See `Board`."""
        poller = select.poll()
        poller.register(self._link, select.POLLIN | (select.POLLOUT if self._link.wants_to_write else 0))
        poller.poll(max(0.0, seconds) * 1000)
        self._take()

    def close(self) -> None:
        """Leaves the board. May be called twice."""
        self._link.close()

    def _read_all_that_stands(self, deadline: float) -> None:
        self._take()
        while not self._complete:
            left = deadline - time.monotonic()
            if left <= 0:
                raise ConnectError("The launcher did not show its board within the time for the start.")
            self.wait(left)

    def _take(self) -> None:
        try:
            self._link.flush()
            for message in self._link.receive():
                if isinstance(message, Post):
                    key, _, value = message.text.partition("=")
                    self._order.setdefault(key, len(self._order))
                    self._entries.setdefault(key, value)
                else:
                    self._complete = True
        except LinkClosedError as error:
            raise ConnectError(_ENDED) from error
        except ProtocolError as error:
            raise ConnectError(f"The launcher does not keep to the protocol of its board: {error}") from error


def _connect(sock: socket.socket, directory: str) -> None:
    # A Unix address holds 108 bytes, a directory may be deeper.
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sock.connect(f"/proc/self/fd/{fd}/{SOCKET_NAME}")
    except OSError as error:
        raise MeetingError(
            f"The job spans several hosts, but its launcher does not listen at {directory}/{SOCKET_NAME} "
            f"({error.strerror}): it has ended, or it cannot start jobs on several hosts."
        ) from error
    finally:
        os.close(fd)
