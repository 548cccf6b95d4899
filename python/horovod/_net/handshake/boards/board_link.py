"""The board of a job, as one of its ranks sees it over a connection to its keeper.

Entries come by themselves: all that stand when this rank connects, a Ready, then each new one. Used by bootstrap. The
launcher, or its agent on this host, listens at a Unix socket in its private directory, whose other end must belong to
this user; a board that a rank keeps is reached by `board_call`.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import socket
import time
from typing import Optional

from horovod._net.failures import ConnectError, MeetingError, ProtocolError
from horovod._net.handshake.frames.links import Link, LinkClosedError
from horovod._net.handshake.frames.messages import ON_A_BOARD, AnyMessage, Post, Posts, Ready
from horovod._net.meeting.entries import Standing

SOCKET_NAME = "board"
_LONGEST_WAIT_S = 60.0  # the kernel knows no longer one than 24 days


class BoardLink:
    """See the head of the file, and `meeting.board.Board`.

    Args:
        link: to the keeper, which is trusted. It is this object's.
        keeper: its name, for messages.
        deadline: monotonic seconds, for the first entries to come.

    Raises:
        ConnectError: the keeper does not answer.
    """

    def __init__(self, link: Link, keeper: str, deadline: float) -> None:
        self._complete = False
        self._keeper = keeper
        self._number = 0
        self._given = 0  # entries, by `news`
        self._order: dict[str, int] = {}
        self._entries: dict[str, str] = {}
        self._link = link
        try:
            link.reader.allowed = ON_A_BOARD
            self._read_all_that_stands(deadline)
        except BaseException:
            link.close()
            raise

    def post(self, key: str, value: str) -> None:
        """See `Board`."""
        try:
            self._link.send(Post(f"{key}={value}"))
        except LinkClosedError as error:
            raise ConnectError(self._ended()) from error

    def get(self, key: str) -> Optional[str]:
        """See `Board`."""
        self._take()
        return self._entries.get(key)

    def before(self, key: str, other: str) -> bool:
        """See `Board`."""
        return key in self._order and other in self._order and self._order[key] < self._order[other]

    def keys(self) -> list[str]:
        """See `Board`."""
        self._take()
        return list(self._entries)

    def fileno(self) -> int:
        """Readable when something has come."""
        return self._link.fileno()

    def news(self) -> list[tuple[str, str]]:
        """The entries that have come since the last call, in their order; on a board that never has to `forget`.

        Raises:
            ConnectError: as `post`, but not before all that have come were given; other methods raise it earlier.
        """
        try:
            self._take()
        except ConnectError:
            if self._given == len(self._entries):
                raise
        found = list(itertools.islice(self._entries.items(), self._given, None))
        self._given += len(found)
        return found

    def wait(self, seconds: float) -> None:
        """See `Board`."""
        poller = select.poll()
        poller.register(self._link, select.POLLIN | (select.POLLOUT if self._link.wants_to_write else 0))
        poller.poll(min(max(0.0, seconds), _LONGEST_WAIT_S) * 1000)
        self._take()

    def forget(self) -> None:
        """Between two meetings, on a board that is used for several: forgets what nobody needs any more."""
        standing = Standing()
        for key, value in self._entries.items():
            standing.add(f"{key}={value}")
        kept = {text.partition("=")[0] for text in standing}
        self._entries = {key: value for key, value in self._entries.items() if key in kept}
        self._order = {key: number for key, number in self._order.items() if key in kept}

    def close(self) -> None:
        """Leaves the board. May be called twice."""
        self._link.close()

    def _ended(self) -> str:
        return f"{self._keeper} has ended."

    def _read_all_that_stands(self, deadline: float) -> None:
        self._take()
        while not self._complete:
            left = deadline - time.monotonic()
            if left <= 0:
                raise ConnectError(f"{self._keeper} did not show its board within the time for the start.")
            self.wait(left)

    def _take(self) -> None:
        with contextlib.suppress(LinkClosedError):  # what has come until then is read first
            self._link.flush()
        try:
            for message in self._link.receive():
                for text in _entries_in(message):
                    key, _, value = text.partition("=")
                    self._order.setdefault(key, self._number)
                    self._number += 1
                    self._entries.setdefault(key, value)
                self._complete = self._complete or isinstance(message, Ready)
        except LinkClosedError as error:
            raise ConnectError(self._ended()) from error
        except ProtocolError as error:
            raise ConnectError(f"{self._keeper} does not keep to the protocol of its board: {error}") from error


def _entries_in(message: AnyMessage) -> list[str]:
    if isinstance(message, Posts):
        return message.entries()
    return [message.text] if isinstance(message, Post) else []


def on_this_host(directory: str, deadline: float) -> BoardLink:
    """The board of the launcher that has made this directory.

    Args:
        directory: of the launcher.
        deadline: monotonic seconds, for the first entries to come.

    Raises:
        MeetingError: nobody listens there, or another user does.
        ConnectError: the launcher does not answer.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    link = Link(sock)
    try:
        sock.setblocking(True)
        _connect(sock, directory)
        sock.setblocking(False)
        if link.peer_process()[1] != os.geteuid():
            raise MeetingError(f"Another user listens at {directory}/{SOCKET_NAME}; end that process.")
    except BaseException:
        sock.close()
        raise
    return BoardLink(link, "The launcher", deadline)


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
