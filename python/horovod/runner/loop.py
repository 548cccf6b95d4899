"""Waits for descriptors, and calls their handlers: one epoll, and timers that tick.

Used by everything in this folder that reads or writes. The loop itself has a descriptor, readable when a turn has
something to do, so that it fits into somebody else's.
"""

from __future__ import annotations

import ctypes
import os
import select
import struct
import time
from typing import Callable, Final, Optional

TICK_S: Final = 1.0
_CLOCK_MONOTONIC: Final = 1

Handler = Callable[[], None]


class Loop:
    """See the head of the file. Descriptors stay their owners'."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._handlers: dict[int, tuple[Optional[Handler], Optional[Handler]]] = {}
        self._timer_fds: list[int] = []

    def fileno(self) -> int:
        """Readable when a turn has something to do."""
        return self._epoll.fileno()

    def watch(self, fd: int, readable: Optional[Handler], writable: Optional[Handler] = None) -> None:
        """From here on calls these when the descriptor is ready; with neither: no longer watches it.

        Raises:
            PermissionError: it is a file, which cannot be waited for.
        """
        known = fd in self._handlers
        mask = (select.EPOLLIN if readable else 0) | (select.EPOLLOUT if writable else 0)
        if not mask:
            # The epoll would report the end of a stream that nobody reads again and again.
            if known:
                del self._handlers[fd]
                self._epoll.unregister(fd)
            return
        if known:
            self._epoll.modify(fd, mask)
        else:
            self._epoll.register(fd, mask)
        self._handlers[fd] = (readable, writable)

    def tick(self, handler: Handler, every_s: float = TICK_S) -> None:
        """Calls this so often, once a second if nothing else is said."""
        libc = ctypes.CDLL(None, use_errno=True)
        timer_fd = libc.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        seconds, nanoseconds = divmod(round(every_s * 1e9), 10**9)
        times = struct.pack("llll", seconds, nanoseconds, seconds, nanoseconds)
        if timer_fd < 0 or libc.timerfd_settime(timer_fd, 0, times, None):
            raise OSError(ctypes.get_errno(), "cannot create a timer")
        self._timer_fds.append(timer_fd)

        def ticked() -> None:
            os.read(timer_fd, 8)
            handler()

        self.watch(timer_fd, ticked)

    def turn(self, timeout_s: Optional[float] = None) -> None:
        """Waits until something is ready, or for this time, and calls the handlers."""
        for fd, mask in self._epoll.poll(timeout_s):
            readable, writable = self._handlers.get(fd, (None, None))
            if writable and mask & (select.EPOLLOUT | select.EPOLLERR | select.EPOLLHUP):
                writable()
                readable, _ = self._handlers.get(fd, (None, None))  # it may have left
            if readable and mask & (select.EPOLLIN | select.EPOLLERR | select.EPOLLHUP):
                readable()

    def until(self, over: Callable[[], bool], deadline_s: Optional[float] = None) -> bool:
        """Turns until `over`, or until the deadline (on the monotonic clock); says whether it is."""
        while not over():
            left_s = None if deadline_s is None else deadline_s - time.monotonic()
            if left_s is not None and left_s <= 0:
                return False
            self.turn(left_s)
        return True

    def close(self) -> None:
        """Ends the watch."""
        for timer_fd in self._timer_fds:
            os.close(timer_fd)
        self._epoll.close()
