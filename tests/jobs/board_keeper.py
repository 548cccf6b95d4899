"""Keeps the board of a job on several hosts that are directories of this one, as the launcher's agents would.

Used by `hosts_on_loopback` and by tests of the ranks' side.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import select
import socket
import threading
from collections.abc import Sequence

from horovod._net.handshake.frames.messages import ON_A_BOARD, FrameReader, Post, Ready, frame
from horovod._net.meeting.entries import Standing


class BoardKeeper:
    """Keeps one board for several directories: the first post of a key wins, and everybody hears of it.

    Args:
        directories: of the hosts.
    """

    def __init__(self, directories: Sequence[pathlib.Path]) -> None:
        self._standing = Standing()
        self._listeners = [_listen(directory) for directory in directories]
        self._readers: dict[socket.socket, FrameReader] = {}
        self._lock = threading.Lock()
        self._stop, self._stopping = os.pipe()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def entries(self) -> dict[str, str]:
        """What stands, by key."""
        with self._lock:
            return {key: value for key, _, value in (text.partition("=") for text in self._standing)}

    def post(self, key: str, value: str) -> None:
        """An entry of the launcher's own."""
        self._post(f"{key}={value}")

    def _post(self, text: str) -> None:
        with self._lock:
            if self._standing.add(text):
                for client in self._readers:
                    _send(client, text)

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
            for text in self._standing:
                _send(client, text)
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
            self._post(message.text)


def _send(client: socket.socket, text: str) -> None:
    with contextlib.suppress(ConnectionError):  # it has left, which its next read tells
        client.sendall(frame(Post(text)))


def _listen(directory: pathlib.Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        listener.bind(f"/proc/self/fd/{fd}/board")
    finally:
        os.close(fd)
    listener.listen(64)
    return listener
