"""Hosts for the tests of horovod._net: each a directory of a launcher with the socket of its board, on the loopback.

The ranks of a host meet in its directory and share memory; those of different hosts know of one another by the board
alone, as they would with a network between them.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import select
import socket
import threading
from collections.abc import Sequence
from typing import Any

from net_ranks import unique_key

from horovod._net import Placement
from horovod._net.handshake.messages import ON_A_BOARD, FrameReader, Post, Ready, frame

SECRET = bytes(range(32))


class BoardKeeper:
    """Keeps one board for several directories: the first post of a key wins, and everybody hears of it.

    Args:
        directories: of the hosts.
    """

    def __init__(self, directories: Sequence[pathlib.Path]) -> None:
        self.entries: dict[str, str] = {}
        self._listeners = [_listen(directory) for directory in directories]
        self._readers: dict[socket.socket, FrameReader] = {}
        self._lock = threading.Lock()
        self._stop, self._stopping = os.pipe()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def post(self, key: str, value: str) -> None:
        """An entry of the launcher's own."""
        with self._lock:
            if key in self.entries:
                return
            self.entries[key] = value
            for client in self._readers:
                _send(client, key, value)

    def close(self) -> None:
        """As if the launcher had died."""
        os.close(self._stopping)
        self._thread.join(10)
        os.close(self._stop)

    def _serve(self) -> None:
        while True:
            sources = [*self._listeners, *self._readers, self._stop]
            for source in select.select(sources, [], [])[0]:
                if source == self._stop:
                    for sock in (*self._listeners, *self._readers):
                        sock.close()
                    return
                self._accept(source) if source in self._listeners else self._read(source)

    def _accept(self, listener: socket.socket) -> None:
        client, _ = listener.accept()
        with self._lock:
            self._readers[client] = FrameReader(ON_A_BOARD)
            for key, value in self.entries.items():
                _send(client, key, value)
            with contextlib.suppress(ConnectionError):
                client.sendall(frame(Ready()))

    def _read(self, client: socket.socket) -> None:
        try:
            data = client.recv(65536)
        except ConnectionError:
            data = b""
        if not data:
            with self._lock:
                del self._readers[client]
            client.close()
            return
        reader = self._readers[client]
        reader.feed(data)
        while (message := reader.next()) is not None:
            assert isinstance(message, Post)
            key, _, value = message.text.partition("=")
            self.post(key, value)


class Hosts:
    """A job on several hosts.

    Args:
        base: where the directories of the hosts are made.
        counts: ranks of each host.
        fields: of all placements.
    """

    def __init__(self, base: pathlib.Path, counts: Sequence[int], **fields: Any) -> None:
        self.directories = [base / f"host{index}" for index in range(len(counts))]
        for directory in self.directories:
            directory.mkdir(mode=0o700)
        self.board = BoardKeeper(self.directories)
        key = unique_key()
        size = sum(counts)
        self.placements = []
        for index, count in enumerate(counts):
            for local_rank in range(count):
                place: dict[str, Any] = {
                    "hostname": f"host{index}",
                    "meeting_directory": str(self.directories[index]),
                    "secret": SECRET,
                    "address": "127.0.0.1",
                    **fields,
                }
                rank = len(self.placements)
                self.placements.append(
                    Placement(rank, size, local_rank, count, index, len(counts), "horovodrun", key, **place)
                )

    def left_behind(self) -> list[str]:
        """What lies in the directories but the sockets of the board."""
        return [name for directory in self.directories for name in os.listdir(directory) if name != "board"]


def _send(client: socket.socket, key: str, value: str) -> None:
    with contextlib.suppress(ConnectionError):  # it has left, which its next read tells
        client.sendall(frame(Post(f"{key}={value}")))


def _listen(directory: pathlib.Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        listener.bind(f"/proc/self/fd/{fd}/board")
    finally:
        os.close(fd)
    listener.listen(64)
    return listener
