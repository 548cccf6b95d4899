"""The connections of a service that have not authenticated yet: a limited number; the oldest is closed first.

Used by `service`. A member authenticates within milliseconds; so the oldest is one that sends nothing, and makes room,
whatever it is; silent connections, such as those of a port scanner, never keep a member out.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from typing import Final

MOST: Final = 64

log = logging.getLogger("horovod")


class Strangers:
    """Any thread may call its methods."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[socket.socket, None] = {}  # in the order of their coming
        self._told = False

    def admit(self, sock: socket.socket) -> None:
        """One more; of too many the oldest loses its connection, which ends the thread that reads from it."""
        with self._lock:
            self._waiting[sock] = None
            if len(self._waiting) <= MOST:
                return
            oldest = next(iter(self._waiting))
            del self._waiting[oldest]
        if not self._told:
            self._told = True
            log.warning("compute service: %d connections send nothing; the oldest are closed from now on", MOST)
        with contextlib.suppress(OSError):
            oldest.shutdown(socket.SHUT_RDWR)

    def forget(self, sock: socket.socket) -> None:
        """It has authenticated, or it is gone."""
        with self._lock:
            self._waiting.pop(sock, None)
