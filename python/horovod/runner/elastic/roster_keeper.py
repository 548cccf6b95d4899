"""Keeps the roster of an elastic job on one host: takes in its workers' messages, and sends them theirs.

Used by the crew of an elastic job on this machine, and by `remote.agent` on another one. What the messages are is in
`horovod._net.roster`. A connection belongs to the worker that asks over it first; a second one for the same worker, of
a process that it has started, is dropped, as is a client that breaks the protocol.
"""

from __future__ import annotations

import functools
import logging
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Optional, Union

from horovod._net.failures import ProtocolError
from horovod._net.identity import peer_credentials
from horovod._net.roster import SOCKET_NAME, Lines, packed
from horovod.runner.loop import TICK_S, Loop
from horovod.runner.machines.limits import NO_ROOM, reason_of
from horovod.runner.processes.crew import Asks, Bereft

MOST_COMMITS: Final = 1 << 53  # and epochs
MOST_OF_A_REASON: Final = 1000  # characters
_BACKLOG: Final = 4096
_MOST_BYTES: Final = 4096  # of a worker's message
_CHUNK_BYTES: Final = 1 << 16

_log: Final = logging.getLogger("horovod.runner")


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
        directory: of the job, this user's alone.
    """

    def __init__(self, directory: Path) -> None:
        self._loop = Loop()
        self._clients: set[_Client] = set()
        self._of_worker: dict[int, _Client] = {}
        self._heard: list[Union[Asks, Bereft]] = []
        self._again_s: Optional[float] = None  # there was no room for another connection: when to look again
        self._told_full = False
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._listener.bind(f"/proc/self/fd/{folder}/{SOCKET_NAME}")
            self._listener.listen(_BACKLOG)
        finally:
            os.close(folder)
        self._loop.watch(self._listener.fileno(), self._accept)

    def fileno(self) -> int:
        """Readable when `serve` has something to do."""
        return self._loop.fileno()

    def next_s(self) -> Optional[float]:
        """When to call `serve` in any case; None: not before it is readable."""
        return self._again_s

    def serve(self) -> list[Union[Asks, Bereft]]:
        """What workers have said since. Does not wait."""
        if self._again_s is not None and time.monotonic() >= self._again_s:
            self._again_s = None
            self._loop.watch(self._listener.fileno(), self._accept)
        self._loop.turn(0)
        heard, self._heard = self._heard, []
        return heard

    def say(self, worker: int, message: Mapping[str, Any]) -> None:
        """Tells a worker something; nothing where it has died, which the keeper of its process tells."""
        client = self._of_worker.get(worker)
        if client is not None:
            client.pending += packed(dict(message))
            self._flush(client)

    def close(self) -> None:
        """Ends all connections. May be called twice."""
        for client in list(self._clients):
            self._drop(client)
        if self._listener.fileno() >= 0:
            self._listener.close()
            self._loop.close()

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError as error:
            if error.errno in NO_ROOM:
                self._rest(error)
            return  # else it has left already
        if peer_credentials(sock)[1] != os.geteuid():
            sock.close()
            return
        sock.setblocking(False)
        client = _Client(sock)
        self._clients.add(client)
        self._watch(client)

    def _rest(self, error: OSError) -> None:
        # Clients that wait in the socket's queue would wake the loop all the time.
        self._again_s = time.monotonic() + TICK_S
        self._loop.watch(self._listener.fileno(), None)
        if not self._told_full:
            self._told_full = True
            why = reason_of(error.errno or 0)
            _log.warning("The roster cannot accept connections: %s. It retries every second.", why)

    def _read(self, client: _Client) -> None:
        try:
            data = client.sock.recv(_CHUNK_BYTES)
            if data:
                self._heard += [self._understood(client, message) for message in client.lines.feed(data)]
            else:
                self._drop(client)
        except BlockingIOError:
            return
        except OSError:  # it has ended with news unread
            self._drop(client)
        except ProtocolError as error:
            _log.warning("a connection to the roster was dropped: %s", error)
            self._drop(client)

    def _understood(self, client: _Client, message: dict[str, Any]) -> Union[Asks, Bereft]:
        try:
            heard: Union[Asks, Bereft]
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
