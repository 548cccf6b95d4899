"""Keeps the roster of an elastic job: takes in its workers' messages, and sends them theirs.

Used by `driver`. What the messages are is in `horovod._net.roster`. A connection belongs to the worker that asks over
it first; a second one for the same worker, of a process that it has started, is dropped, as is whoever talks rubbish.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import socket
from pathlib import Path
from typing import Any, Final, NamedTuple, Optional, Union

from horovod._net.failures import ProtocolError
from horovod._net.identity import peer_credentials
from horovod._net.roster import SOCKET_NAME, Lines, packed
from horovod.runner.elastic.assignment import Seat
from horovod.runner.elastic.events import Asked

_BACKLOG: Final = 4096
_MOST_BYTES: Final = 4096  # of a worker's message
_CHUNK_BYTES: Final = 1 << 16

_log: Final = logging.getLogger("horovod.runner")


class Lost(NamedTuple):
    """The worker's program ends because another rank was lost."""

    worker: int


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
        poller: gets the descriptors that `read` is to be called for.
    """

    def __init__(self, directory: Path, poller: select.epoll) -> None:
        self._poller = poller
        self._clients: dict[int, _Client] = {}
        self._of_worker: dict[int, _Client] = {}
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._listener.bind(f"/proc/self/fd/{folder}/{SOCKET_NAME}")
            self._listener.listen(_BACKLOG)
        finally:
            os.close(folder)
        poller.register(self._listener, select.EPOLLIN)

    def owns(self, fd: int) -> bool:
        """This descriptor is one of the roster's."""
        return fd == self._listener.fileno() or fd in self._clients

    def serve(self, fd: int) -> list[Union[Asked, Lost]]:
        """What has come over this descriptor, which is ready."""
        if fd == self._listener.fileno():
            self._accept()
            return []
        client = self._clients[fd]
        self._flush(client)
        try:
            data = client.sock.recv(_CHUNK_BYTES)
            if not data:
                self._drop(client)
                return []
            return [self._heard(client, message) for message in client.lines.feed(data)]
        except BlockingIOError:
            return []
        except OSError:  # it has ended with news unread
            self._drop(client)
            return []
        except ProtocolError as error:
            _log.warning("a connection to the roster was dropped: %s", error)
            self._drop(client)
            return []

    def place(self, seat: Seat, workers: tuple[int, ...], epoch: int, sync: bool) -> None:
        """Gives a worker its place."""
        numbers = {name: value for name, value in seat.slot._asdict().items() if name != "hostname"}
        self._say(seat.worker, {"place": {**numbers, "epoch": epoch, "workers": workers, "sync": sync}})

    def dismiss(self, worker: int, why: str) -> None:
        """Tells a worker that there is no place for it."""
        self._say(worker, {"leave": why})

    def announce(self, worker: int, kind: int, at_s: float) -> None:
        """Tells a worker of a change of hosts."""
        self._say(worker, {"news": kind, "at": at_s})

    def close(self) -> None:
        """Ends all connections."""
        for client in list(self._clients.values()):
            self._drop(client)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            sock, _ = self._listener.accept()
            if peer_credentials(sock)[1] != os.geteuid():
                sock.close()
                return
            sock.setblocking(False)
            self._clients[sock.fileno()] = _Client(sock)
            self._poller.register(sock, select.EPOLLIN)

    def _heard(self, client: _Client, message: dict[str, Any]) -> Union[Asked, Lost]:
        try:
            heard: Union[Asked, Lost]
            if "ask" in message:
                heard = Asked(int(message["ask"]), (int(message["epoch"]), int(message["commits"])))
            else:
                heard = Lost(int(message["lost"]))
        except (KeyError, TypeError, ValueError):
            raise ProtocolError("no message of a worker") from None
        if self._of_worker.setdefault(heard.worker, client) is not client:
            raise ProtocolError(f"worker {heard.worker} is connected already; this is a process that it has started")
        client.worker = heard.worker
        return heard

    def _say(self, worker: int, message: dict[str, Any]) -> None:
        client = self._of_worker.get(worker)
        if client is not None:  # else it has died, which the keeper tells
            client.pending += packed(message)
            self._flush(client)

    def _flush(self, client: _Client) -> None:
        try:
            while client.pending:
                del client.pending[: client.sock.send(client.pending)]
        except BlockingIOError:
            pass
        except OSError:
            client.pending.clear()  # its end of stream follows
        wanted = select.EPOLLIN | (select.EPOLLOUT if client.pending else 0)
        with contextlib.suppress(OSError):
            self._poller.modify(client.sock, wanted)

    def _drop(self, client: _Client) -> None:
        with contextlib.suppress(OSError):
            self._poller.unregister(client.sock)
        self._clients.pop(client.sock.fileno(), None)
        if client.worker is not None and self._of_worker.get(client.worker) is client:
            del self._of_worker[client.worker]
        client.sock.close()
