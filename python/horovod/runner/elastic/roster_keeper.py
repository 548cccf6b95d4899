"""Keeps the roster of an elastic job on one host: takes in its workers' messages, and sends them theirs.

Used by the crew of an elastic job on this machine, and by `remote.agent` on another one. What the messages are is in
`horovod._net.roster`. A connection belongs to the worker that asks over it first; a second one for the same worker, of
a process that it has started, is dropped, as is a client that breaks the protocol.
"""

from __future__ import annotations

import functools
import logging
import socket
from collections.abc import Mapping
from typing import Any, Callable, Final, Optional, Union

from horovod._net.failures import ProtocolError
from horovod._net.roster import SOCKET_NAME, Lines, packed
from horovod.runner.job_socket import JobSocket
from horovod.runner.loop import Loop
from horovod.runner.processes.crew import Asks, Bereft

MOST_COMMITS: Final = 1 << 53  # and epochs
MOST_OF_A_REASON: Final = 1000  # characters
_MOST_BYTES: Final = 4096  # of a worker's message
_CHUNK_BYTES: Final = 1 << 16

_log: Final = logging.getLogger("horovod.runner")

Heard = Union[Asks, Bereft]


class _Client:
    """One connection."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.lines = Lines(_MOST_BYTES)
        self.worker: Optional[int] = None
        self.pending = bytearray()


class RosterKeeper:
    """See the head of the file.

    Args:
        loop: that calls.
        directory_fd: of the job's directory, this user's alone.
        hear: takes what a worker says.

    Attributes:
        socket: where workers come.
    """

    def __init__(self, loop: Loop, directory_fd: int, hear: Callable[[Heard], None]) -> None:
        self._loop = loop
        self._hear = hear
        self._clients: set[_Client] = set()
        self._of_worker: dict[int, _Client] = {}
        self.socket = JobSocket(loop, directory_fd, SOCKET_NAME, "The roster", self._admit)

    def hear_all(self) -> None:
        """Takes in what has come by now: what a worker has said before it ended comes before its end."""
        for client in list(self._clients):
            self._read(client)

    def say(self, worker: int, message: Mapping[str, Any]) -> None:
        """Tells a worker something; nothing where it has died, which the keeper of its process tells."""
        client = self._of_worker.get(worker)
        if client is not None:
            client.pending += packed(dict(message))
            self._flush(client)

    def close(self) -> None:
        """Ends all connections. May be called twice."""
        self.socket.close()
        for client in list(self._clients):
            self._drop(client)

    def _admit(self, sock: socket.socket, pid: int) -> None:
        del pid
        client = _Client(sock)
        self._clients.add(client)
        self._watch(client)

    def _read(self, client: _Client) -> None:
        try:
            data = client.sock.recv(_CHUNK_BYTES)
            if data:
                for message in client.lines.feed(data):
                    self._hear(self._understood(client, message))
            else:
                self._drop(client)
        except BlockingIOError:
            return
        except OSError:  # it has ended with news unread
            self._drop(client)
        except ProtocolError as error:
            _log.warning("a connection to the roster was dropped: %s", error)
            self._drop(client)

    def _understood(self, client: _Client, message: dict[str, Any]) -> Heard:
        try:
            heard: Heard
            if "ask" in message:
                version = int(message["epoch"]), int(message["commits"])
                heard = Asks(int(message["ask"]), version, str(message["why"]).replace("\0", " ")[:MOST_OF_A_REASON])
                if not (-1 <= version[0] < MOST_COMMITS and 0 <= version[1] < MOST_COMMITS):
                    raise ValueError("the version is out of range")
            else:
                heard = Bereft(int(message["lost"]))
        except (KeyError, TypeError, ValueError):
            raise ProtocolError("not a message of a worker") from None
        if self._of_worker.setdefault(heard.rank, client) is not client:
            raise ProtocolError(f"worker {heard.rank} is connected already; this is a process that it has started")
        client.worker = heard.rank
        return heard

    def _flush(self, client: _Client) -> None:
        try:
            while client.pending:
                del client.pending[: client.sock.send(client.pending)]
        except BlockingIOError:
            pass
        except OSError:
            client.pending.clear()  # its end of stream follows
        self._watch(client)

    def _watch(self, client: _Client) -> None:
        writable = functools.partial(self._flush, client) if client.pending else None
        self._loop.watch(client.sock.fileno(), functools.partial(self._read, client), writable)

    def _drop(self, client: _Client) -> None:
        self._clients.discard(client)
        if client.worker is not None and self._of_worker.get(client.worker) is client:
            del self._of_worker[client.worker]
        if client.sock.fileno() >= 0:
            self._loop.watch(client.sock.fileno(), None)
            client.sock.close()
