"""What wakes a rank while it connects: one selector over listening sockets and links. Used by connect and its parts."""

from __future__ import annotations

import selectors
import socket
from typing import Union

from horovod._net.handshake.frames.links import Link

Source = Union[Link, socket.socket]


class Watch:
    """The sources that may wake this rank. It closes none of them."""

    def __init__(self) -> None:
        self._selector = selectors.EpollSelector()
        self._events: dict[Source, int] = {}

    def fileno(self) -> int:
        """Readable when a source wakes: the watch fits into somebody else's."""
        return self._selector.fileno()

    def add(self, source: Source) -> None:
        """Wakes when the source can be read."""
        self._selector.register(source, selectors.EVENT_READ)
        self._events[source] = selectors.EVENT_READ

    def update(self, link: Link) -> None:
        """Wakes also when the link can be written, if it has something to write; nothing for one that is not ours."""
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if link.wants_to_write else 0)
        if self._events.get(link, events) != events:
            self._selector.modify(link, events)
            self._events[link] = events

    def remove(self, source: Source) -> None:
        """Before the source is closed or handed over."""
        self._selector.unregister(source)
        del self._events[source]

    def wait(self, seconds: float) -> list[Source]:
        """The sources that can be read or written."""
        by_descriptor = self._selector.select(seconds)
        return [key.fileobj for key, _ in by_descriptor if isinstance(key.fileobj, (Link, socket.socket))]

    def close(self) -> None:
        """Ends the watch. May be called twice."""
        self._selector.close()
