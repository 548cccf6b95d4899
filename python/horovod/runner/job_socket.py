"""A Unix socket in a job's directory, where processes of this user come and nobody else.

Used by the roster of an elastic job, by the board of an agent, and where a launcher is asked for the status of its job.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from typing import Callable, Final, Optional

from horovod._net.identity import peer_credentials
from horovod.runner.loop import TICK_S, Loop
from horovod.runner.machines.limits import NO_ROOM, reason_of

_BACKLOG: Final = 4096

_log: Final = logging.getLogger("horovod.runner")


class JobSocket:
    """See the head of the file.

    Args:
        loop: that calls.
        directory_fd: of the job's directory; -1: there is none, and the name is one of the abstract namespace, which
            goes with this process however it ends.
        name: of the socket there.
        who: listens, for the log.
        admit: takes a connection, which does not block, and the pid of its process.

    Attributes:
        again_s: there was no room for another connection: when to `look_again`.
    """

    def __init__(
        self, loop: Loop, directory_fd: int, name: str, who: str, admit: Callable[[socket.socket, int], None]
    ) -> None:
        self._loop = loop
        self._who = who
        self._admit = admit
        self.again_s: Optional[float] = None
        self._reported_full = False
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            if directory_fd < 0:
                self._socket.bind(f"\0{name}")
            else:
                # By the directory's descriptor: a path may be longer than an address of a socket can be.
                place = f"/proc/self/fd/{directory_fd}/{name}"
                self._socket.bind(place)
                os.chmod(place, 0o600)
            self._socket.listen(_BACKLOG)
        except OSError:
            self._socket.close()
            raise
        loop.watch(self._socket.fileno(), self._accept)

    def look_again(self) -> None:
        """Lets processes in again, if there was no room for another one."""
        if self.again_s is not None:
            self.again_s = None
            self._loop.watch(self._socket.fileno(), self._accept)

    def close(self) -> None:
        """Lets nobody in any more; the socket's name goes with the directory. May be called twice."""
        if self._socket.fileno() >= 0:
            self._loop.watch(self._socket.fileno(), None)
            self._socket.close()

    def _accept(self) -> None:
        try:
            connection, _ = self._socket.accept()
        except OSError as error:
            if error.errno in NO_ROOM:
                self._rest(error.errno)
            return  # else it has left already
        pid, uid = peer_credentials(connection)
        if uid != os.geteuid():
            connection.close()
            self._pause()  # of an abstract name: who comes again and again must not keep this process busy
            return
        connection.setblocking(False)
        self._admit(connection, pid)

    def _pause(self) -> None:
        self.again_s = time.monotonic() + TICK_S
        self._loop.watch(self._socket.fileno(), None)

    def _rest(self, number: int) -> None:
        # Processes that wait in the socket's queue would wake the loop all the time.
        self._pause()
        if not self._reported_full:
            self._reported_full = True
            _log.warning("%s cannot accept connections: %s. It retries every second.", self._who, reason_of(number))
