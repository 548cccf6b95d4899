"""News of hosts on their way from the launcher to the training loop: `NotificationManager`.

In an elastic job the launcher tells its ranks; `collect` looks whether it has, without a thread of its own. Any other
source calls `handle_hosts_updated`, on any thread. States that listen are notified.
"""

from __future__ import annotations

import threading
from typing import Final, Protocol

from horovod._core.life import membership

__all__ = ["HostUpdateResult", "NotificationManager", "notification_manager"]


class HostUpdateResult:
    """Kinds of update; they add up."""

    no_update: Final = 0
    removed: Final = 1
    added: Final = 2
    mixed: Final = 3


class Listener(Protocol):
    """An object that wants to know of host changes; `State` is one."""

    def on_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Hosts have changed.

        Args:
            timestamp: when, in seconds since the epoch.
            update_res: one of HostUpdateResult.
        """
        ...


class NotificationManager:
    """Passes news of hosts on to its listeners. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards _listeners
        self._listeners: list[Listener] = []

    def init(self) -> None:
        """Begins to listen. Nothing has to be opened for it: `collect` uses the connection that `hvd.init` has made."""

    def register_listener(self, listener: Listener) -> None:
        """Tells `listener` of all later updates; registering twice changes nothing."""
        with self._lock:
            if listener not in self._listeners:
                self._listeners.append(listener)

    def remove_listener(self, listener: Listener) -> None:
        """Stops telling `listener`; unknown ones are ignored."""
        with self._lock:
            if listener in self._listeners:
                self._listeners.remove(listener)

    def collect(self) -> None:
        """Passes on to all listeners what the launcher has sent since the last call. Costs one poll of a socket."""
        for news in membership.news():
            self.handle_hosts_updated(news.at_s, news.kind)

    def handle_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Tells all listeners."""
        with self._lock:
            listeners = list(self._listeners)
        for listener in listeners:
            listener.on_hosts_updated(timestamp, update_res)


notification_manager: Final = NotificationManager()
