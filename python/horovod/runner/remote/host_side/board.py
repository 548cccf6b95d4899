"""The board of a job on one host: a Unix socket in the job's directory, for the ranks and nobody else.

Used by `agent`. A client that connects gets every entry that stands, a Ready, then each new entry. A client that posts
is answered, sooner or later, by the entry that stands under that key: the launcher decides which. Nothing here blocks:
an entry is kept once, however many clients still have to read it. An entry that is forgotten meanwhile is still sent to
clients that came before.
"""

from __future__ import annotations

import logging
import socket
from collections import deque
from typing import Callable, Final

from horovod._net.failures import ProtocolError
from horovod._net.handshake.boards.board_link import SOCKET_NAME
from horovod._net.handshake.frames.messages import ON_A_BOARD, FrameReader, Post, Ready, frame
from horovod._net.meeting.entries import Standing, key_of, size_of
from horovod.runner.job_socket import JobSocket
from horovod.runner.loop import Loop

MAX_BEHIND_BYTES: Final = 1 << 20  # of new entries, for a client that does not read them
_READ_BYTES: Final = 1 << 16
_WRITE_BYTES: Final = 1 << 16
_CLIENTS_PER_RANK: Final = 8
_OTHER_CLIENTS: Final = 64

_log: Final = logging.getLogger("horovod.runner")


class Board:
    """See the head of the file.

    Args:
        loop: that calls.
        directory_fd: of the job's directory, where the socket `board` is made.
        ranks: on this host; they bound the number of clients.
        forward: takes an entry to the judge.
        seen: called with each process that comes (pid, True) or goes (pid, False).

    Attributes:
        socket: where clients come.
    """

    def __init__(
        self,
        loop: Loop,
        directory_fd: int,
        ranks: int,
        forward: Callable[[str], None],
        seen: Callable[[int, bool], None],
    ) -> None:
        self._loop = loop
        self._most_clients = ranks * _CLIENTS_PER_RANK + _OTHER_CLIENTS
        self.forward = forward
        self.seen = seen
        self.standing = Standing()
        self._clients: set[_Client] = set()
        self.socket = JobSocket(loop, directory_fd, SOCKET_NAME, "The job's board", self._admit)

    def stand(self, text: str) -> None:
        """The judge says that this entry stands."""
        if self.standing.add(text):
            for client in list(self._clients):
                client.tell(text)

    def expect(self, ranks: int) -> None:
        """So many more ranks come to this host."""
        self._most_clients += ranks * _CLIENTS_PER_RANK

    def hold(self, held: bool) -> None:
        """While held, no client is listened to: the way to the judge is full."""
        for client in list(self._clients):
            client.hold(held)

    def gone(self, client: _Client) -> None:
        """This client has closed itself."""
        self._clients.discard(client)

    def close(self) -> None:
        """Ends all connections."""
        self.socket.close()
        for client in list(self._clients):
            client.close()

    def _admit(self, connection: socket.socket, pid: int) -> None:
        if len(self._clients) >= self._most_clients:
            connection.close()
        else:
            self._clients.add(_Client(self, self._loop, connection, pid))


class _Client:
    """One connection: what it still has to read, and what it has sent so far."""

    def __init__(self, board: Board, loop: Loop, connection: socket.socket, pid: int) -> None:
        self._board = board
        self._loop = loop
        self._connection = connection
        self._pid = pid
        self._reader = FrameReader(ON_A_BOARD)
        self._pending = bytearray()  # on its way to the client
        self._stood = deque(board.standing)  # before it came: does not count as unread; a Ready follows
        self._news: deque[str] = deque()
        self._behind_bytes = 0  # of the news
        self._held = False
        self._told_ready = False
        board.seen(pid, True)
        self._watch()

    def tell(self, text: str) -> None:
        """An entry stands now."""
        self._news.append(text)
        self._behind_bytes += size_of(text)
        if self._behind_bytes > MAX_BEHIND_BYTES:
            _log.warning("A process (pid %d) does not read the job's board, and was cut off from it.", self._pid)
            self.close()
        self._watch()

    def hold(self, held: bool) -> None:
        """See `Board.hold`."""
        self._held = held
        self._watch()

    def close(self) -> None:
        """Ends the connection."""
        if self._connection.fileno() >= 0:
            self._loop.watch(self._connection.fileno(), None)
            self._connection.close()
            self._board.gone(self)
            self._board.seen(self._pid, False)

    def _watch(self) -> None:
        if self._connection.fileno() >= 0:
            more = self._pending or self._news or not self._told_ready
            read, write = None if self._held else self._read, self._write if more else None
            self._loop.watch(self._connection.fileno(), read, write)

    def _read(self) -> None:
        try:
            data = self._connection.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        try:
            self._reader.feed(data)
            while (message := self._reader.next()) is not None:
                self._take(message.text if isinstance(message, Post) else "")
        except ProtocolError as error:
            _log.warning("A process (pid %d) was cut off from the job's board: %s", self._pid, error)
            self.close()

    def _take(self, text: str) -> None:
        key = key_of(text)
        if key is None:
            raise ProtocolError("Its post does not have the form key=value.")
        if self._board.standing.takes(key):  # else it has heard, or will hear, what stands there
            self._board.forward(text)

    def _write(self) -> None:
        self._fill()
        try:
            del self._pending[: self._connection.send(self._pending)]
        except BlockingIOError:
            return
        except OSError:
            self.close()
            return
        self._watch()

    def _fill(self) -> None:
        while len(self._pending) < _WRITE_BYTES:
            if self._stood:
                self._pending += frame(Post(self._stood.popleft()))
            elif not self._told_ready:
                self._pending += frame(Ready())
                self._told_ready = True
            elif self._news:
                text = self._news.popleft()
                self._behind_bytes -= size_of(text)
                self._pending += frame(Post(text))
            else:
                return
