"""What the ranks of a host write, on its way from their pipes to the launcher, for as long as that takes it.

Used by `agent`.
"""

from __future__ import annotations

import fcntl
import functools
import os
import sys
import termios
from typing import Callable, Final

from horovod.runner.loop import Loop
from horovod.runner.remote.wire import frames

WINDOW_BYTES: Final = 1 << 18  # of output that the launcher has not taken yet


class Outflow:
    """See the head of the file.

    Args:
        loop: that calls.
        send: takes a frame for the launcher.
        pipes: (rank, number of the stream) by the read end. Those that have ended are closed and taken out.
    """

    def __init__(self, loop: Loop, send: Callable[[bytes], None], pipes: dict[int, tuple[int, int]]) -> None:
        self._loop = loop
        self._send = send
        self._pipes = pipes
        self._credit_bytes = WINDOW_BYTES

    def credit(self, count: int) -> None:
        """The launcher has taken so many bytes."""
        self._credit_bytes = min(WINDOW_BYTES, self._credit_bytes + count)
        self.watch()

    def watch(self) -> None:
        """Listens to the pipes, if the launcher takes anything."""
        for fd in list(self._pipes):
            self._loop.watch(fd, functools.partial(self._read, fd) if self._credit_bytes > 0 else None)

    def end(self) -> None:
        """Passes on what lies in the pipes now, and no more: a process outside the job may hold them open for
        ever."""
        for fd in list(self._pipes):
            count = int.from_bytes(fcntl.ioctl(fd, termios.FIONREAD, bytes(4)), sys.byteorder)
            while count > 0:
                data = os.read(fd, min(count, frames.MAX_OUTPUT_BYTES))
                self._pass_on(fd, data)
                count -= len(data)
            self._pass_on(fd, b"")

    def _read(self, fd: int) -> None:
        if fd not in self._pipes or self._credit_bytes <= 0:
            return
        self._pass_on(fd, os.read(fd, frames.MAX_OUTPUT_BYTES))
        if self._credit_bytes <= 0:
            self.watch()

    def _pass_on(self, fd: int, data: bytes) -> None:
        rank, stream = self._pipes[fd]
        self._send(frames.output_frame(rank, stream, data))
        self._credit_bytes -= len(data)
        if not data:
            self._loop.watch(fd, None)
            del self._pipes[fd]
            os.close(fd)
