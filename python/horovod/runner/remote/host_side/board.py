"""The board of a job on one host: a Unix socket in the job's directory, for the ranks and nobody else.

Used by `agent`. A client that connects gets every entry that stands, a Ready, then each new entry. A client that posts
is answered, sooner or later, by the entry that stands under that key: the launcher decides which. Nothing here blocks.
An entry that is forgotten meanwhile is still sent to clients that came before.
"""

from __future__ import annotations

import logging
import socket
from typing import Callable, Final

from horovod._net.handshake.boards.board_link import SOCKET_NAME
from horovod._net.handshake.boards.readers import Readers
from horovod._net.handshake.frames.links import Link
from horovod._net.handshake.frames.messages import Post
from horovod._net.handshake.frames.watch import Watch
from horovod._net.meeting.entries import key_of
from horovod.runner.job_socket import JobSocket
from horovod.runner.loop import Loop

MOST_UNREAD_BYTES: Final = 1 << 20  # of new entries, for a client that does not read them
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
        self._forward = forward
        self._seen = seen
        self._watch = Watch()
        self._readers = Readers(self._watch, self._post, self._lost, MOST_UNREAD_BYTES)
        self.socket = JobSocket(loop, directory_fd, SOCKET_NAME, "The job's board", self._admit)
        self.hold(False)

    def stand(self, text: str) -> None:
        """The judge says that this entry stands."""
        if self._readers.standing.add(text):
            for client in list(self._readers.number_of):
                self._readers.send(client, Post(text))

    def expect(self, ranks: int) -> None:
        """So many more ranks come to this host."""
        self._most_clients += ranks * _CLIENTS_PER_RANK

    def hold(self, held: bool) -> None:
        """While held, no client is listened to: the way to the judge is full."""
        self._loop.watch(self._watch.fileno(), None if held else self._serve)

    def close(self) -> None:
        """Ends all connections."""
        self.socket.close()
        self.hold(True)
        for client in list(self._readers.number_of):
            self._readers.drop(client)
        self._watch.close()

    def _admit(self, connection: socket.socket, pid: int) -> None:
        if len(self._readers.number_of) >= self._most_clients:
            connection.close()
        else:
            self._seen(pid, True)
            self._readers.add(Link(connection), pid)

    def _serve(self) -> None:
        for client in self._watch.wait(0):
            if isinstance(client, Link) and client in self._readers.number_of:
                self._readers.hear(client)

    def _post(self, text: str) -> None:
        if self._readers.standing.takes(key_of(text) or ""):  # else it has heard, or will hear, what stands there
            self._forward(text)

    def _lost(self, pid: int, why: str) -> None:
        if why:
            _log.warning("A process (pid %d) was cut off from the job's board: %s", pid, why)
        self._seen(pid, False)
