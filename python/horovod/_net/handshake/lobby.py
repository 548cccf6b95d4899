"""Where a thread lets in those that prove the secret: a listener, and the connections that have not proven it yet.

Used by kept_board and on_demand, and by the launcher for agents that call it (`horovod.runner.remote.ways.by_tcp`).
The job goes on meanwhile, so strangers fail nothing, and a log that hangs does not hold the thread up.
"""

from __future__ import annotations

import errno
import socket
import time
from typing import Callable, Final, Optional

from horovod._net.failures import AuthenticationError, ProtocolError
from horovod._net.handshake.door import Door
from horovod._net.handshake.frames import auth
from horovod._net.handshake.frames.links import Link, LinkClosedError
from horovod._net.handshake.frames.messages import AnyMessage
from horovod._net.handshake.frames.watch import Source, Watch
from horovod._net.handshake.strangers import Report
from horovod._net.handshake.visits import Visit, Visits

_LONGEST_SLEEP_S: Final = 3600.0
_REST_S: Final = 0.25
_BROKEN: Final = frozenset({errno.EBADF, errno.EINVAL, errno.ENOTSOCK})  # no later accept can succeed


class Lobby:
    """See the head of the file.

    Args:
        credentials: of this side.
        who: it is, for messages.
        listener: where they come. It is this object's.
        take: takes the next message of a visit. True: the connection is the caller's now.
        failed: a visit is about to be dropped, for this error.
        most: see `Door`.
    """

    def __init__(
        self,
        credentials: auth.Credentials,
        who: str,
        listener: socket.socket,
        take: Callable[[Visit, AnyMessage], bool],
        failed: Callable[[Visit, Exception], None] = lambda visit, error: None,
        most: Optional[int] = None,
    ) -> None:
        self.watch, self.report = Watch(), Report(who, apart=True)
        self.visits = Visits(self.watch, self.report, None)
        self._door = Door(credentials, self.visits, self.report, self.watch, time.monotonic, most)
        self._door.answer_at(listener)
        self._listener = listener
        self._rests_until_s = float("inf")  # the listener is not heard until then; infinite: it is
        self._take = take
        self._failed = failed

    def serve(self, until_s: float) -> list[Source]:
        """Sleeps until something comes, or until then (monotonic seconds). Returns what else wakes the watch, to which
        the owner adds it."""
        others = []
        next_s = min(self._door.next_s(), self._rests_until_s, until_s)
        for source in self.watch.wait(min(max(0.0, next_s - time.monotonic()), _LONGEST_SLEEP_S)):
            if source is self._listener:
                self._let_in()
            elif isinstance(source, Link) and self.visits.of(source) is not None:
                self._hear(source)
            else:
                others.append(source)
        self._door.drop_slow_strangers()
        if time.monotonic() >= self._rests_until_s:
            self._listen_again()
        return others

    def leave(self) -> None:
        """Nobody is expected any more."""
        self._listen_again()
        self._door.leave_others()
        self._listener.close()

    def close(self) -> None:
        """Ends it. In a forked child, too: the selector is shared with the parent, so it is only closed."""
        for visit in self.visits:
            visit.link.close()
        self._listener.close()
        self.watch.close()

    def _let_in(self) -> None:
        try:
            for link in self._door.accept(self._listener):
                self._hear(link)
        except OSError as error:
            if error.errno in _BROKEN:
                raise
            # No descriptor or no memory at the moment: connections wait in the listener's queue.
            self.report.tell(f"connections cannot be accepted at the moment: {error.strerror}")
            self.watch.remove(self._listener)
            self._rests_until_s = time.monotonic() + _REST_S

    def _listen_again(self) -> None:
        if self._rests_until_s != float("inf"):
            self._rests_until_s = float("inf")
            self.watch.add(self._listener)

    def _hear(self, link: Link) -> None:
        visit = self.visits.of(link)
        if visit is None:
            return  # dropped by what came before
        try:
            link.flush()
            for message in link.receive():
                if self._take(visit, message):
                    return
            self.watch.update(link)
        except (LinkClosedError, ProtocolError, AuthenticationError) as error:
            self._failed(visit, error)
            if not visit.accepted:
                self.visits.drop(visit)
            elif isinstance(error, LinkClosedError):
                self.visits.lost(visit, str(error))
            else:
                self.visits.refuse(visit, error)
