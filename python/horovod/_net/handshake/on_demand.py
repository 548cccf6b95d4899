"""Data connections between hosts that are opened while the job runs, when somebody first needs them.

A thread that sleeps until the engine wishes for a connection, or another rank comes with one; it ends with the engine,
which closes its end of the wishes. Of two ranks the higher one dials. Both prove the secret as when the job connected;
then the accepting side says Ready, and from the byte behind that on the connection is the engine's. Strangers are
treated as at the start. Used by `horovod._core.life.connecting`.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from typing import Callable, Final

from horovod._net.connections import Connections
from horovod._net.failures import ConnectError
from horovod._net.handshake import proofs
from horovod._net.handshake.dialler import dial, unreachable
from horovod._net.handshake.frames import auth, messages
from horovod._net.handshake.frames.codes import FrameCodes
from horovod._net.handshake.frames.links import Link, LinkClosedError
from horovod._net.handshake.frames.messages import ROLE_DATA
from horovod._net.handshake.lobby import Lobby
from horovod._net.handshake.strangers import Comebacks
from horovod._net.handshake.visits import Visit

_MOST_STRANGERS: Final = 64  # at a time; a rank that is dropped with them comes again
_NUMBER_BYTES: Final = 4
_ONLY_READY: Final = frozenset({messages.FORMS[messages.Ready].kind})

log = logging.getLogger("horovod")

# What comes of a wish, or of another rank's: the rank, the connection or -1, and why there is none.
Deliver = Callable[[int, int, str], None]


class OnDemand:
    """See the head of the file.

    Args:
        connections: of a rank that has not all it may need; its reach becomes this object's.
        deliver: owns the descriptor from then on; called by the thread.

    Raises:
        ConnectError: the rank has all connections.
    """

    def __init__(self, connections: Connections, deliver: Deliver) -> None:
        place, reach = connections.placement, connections.take_reach()
        if reach is None or place.secret is None:
            raise ConnectError(f"Rank {place.rank} has all connections that it may need.")
        self._reach = reach
        self._credentials = auth.Credentials(
            place.secret, auth.job_digest(place.job_key), connections.epoch, place.rank, place.size
        )
        self._deliver = deliver
        self._wishes, self._wishing = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._wishes.setblocking(False)
        self._pending = b""
        self._comebacks = Comebacks()
        who = f"rank {place.rank}"
        self._lobby = Lobby(self._credentials, who, reach.listener, self._take, self._failed, _MOST_STRANGERS)
        self._lobby.watch.add(self._wishes)
        self._thread = threading.Thread(target=self._serve, name="horovod-connections", daemon=True)

    def take_wish_fd(self) -> int:
        """The engine's end of the wishes, which is the caller's to close. Once."""
        return self._wishing.detach()

    def start(self) -> None:
        """Begins to listen, to wishes and to other ranks."""
        self._thread.start()

    def stop(self, patience_s: float) -> None:
        """After the end of the engine: returns when the thread has ended and everything is closed, or so much later."""
        self._wishing.close()
        if self._thread.is_alive():
            with contextlib.suppress(OSError):  # it is ending
                self._wishes.shutdown(socket.SHUT_RDWR)  # even if another process holds the engine's end
            self._thread.join(patience_s)
        if not self._thread.is_alive():
            self.forget()

    def forget(self) -> None:
        """In a forked child, which has no such thread: its copies would keep the sockets open."""
        self._lobby.close()
        self._wishes.close()

    def _serve(self) -> None:
        try:
            while self._turn():
                pass
        except Exception:  # nobody waits for this thread: what needs a connection then ends with its time-out
            log.exception("rank %d can open no more connections", self._credentials.rank)
        self.forget()

    def _turn(self) -> bool:
        """False: the engine has ended."""
        if self._wishes in self._lobby.serve(self._comebacks.next_s()) and not self._hear_wishes():
            return False
        for rank, _ in self._comebacks.due(time.monotonic()):
            self._dial(rank)
        return True

    def _hear_wishes(self) -> bool:
        try:
            data = self._wishes.recv(4096)
        except BlockingIOError:
            return True
        if not data:
            return False
        data = self._pending + data
        whole = len(data) - len(data) % _NUMBER_BYTES
        self._pending = data[whole:]
        for rank in memoryview(data[:whole]).cast("i"):
            self._dial(rank)
        return True

    def _dial(self, rank: int) -> None:
        address = self._reach.addresses[rank]
        try:
            link = Link(dial(*address))
        except OSError as error:
            self._try_again(rank, unreachable(f"Rank {rank}", address, error))
            return
        link.exact = True
        proof = auth.Connector(self._credentials, rank, ROLE_DATA)
        visit = Visit(link, proof, rank, ROLE_DATA, float("inf"))
        self._lobby.visits.begin(visit)
        try:
            self._lobby.visits.send(visit, proof.hello)
        except LinkClosedError as error:
            self._failed(visit, error)
            self._lobby.visits.drop(visit)

    def _take(self, visit: Visit, message: messages.AnyMessage) -> bool:
        """Takes the next message of a visit. True: the connection is the engine's now."""
        if isinstance(message, messages.Ready):
            self._hand_over(visit)
            return True
        key = proofs.take(visit, message, self._is_expected)
        if key is None:
            return False
        visit.link.protect(FrameCodes(key, connector=not visit.accepted))
        if not visit.accepted:
            visit.link.reader.allowed = _ONLY_READY
            return False
        visit.link.send(messages.Ready())
        if visit.link.wants_to_write:
            raise LinkClosedError("it does not read")  # a few dozen bytes always fit
        self._hand_over(visit)
        return True

    def _is_expected(self, hello: messages.Hello) -> bool:
        return hello.role == ROLE_DATA and hello.from_rank > hello.to_rank and hello.from_rank in self._reach.addresses

    def _hand_over(self, visit: Visit) -> None:
        self._deliver(visit.rank, self._lobby.visits.hand_over(visit).detach(), "")

    def _failed(self, visit: Visit, error: Exception) -> None:
        if visit.accepted:
            return
        if not isinstance(error, LinkClosedError):
            self._deliver(visit.rank, -1, f"Rank {visit.rank} cannot be trusted: {error}")
        elif error.silent:
            remedy = "is the link between the two hosts cut, or one of them down?"
            self._deliver(visit.rank, -1, f"Rank {visit.rank} does not answer: {error}; {remedy}")
        else:
            self._try_again(visit.rank, f"Rank {visit.rank} refused this rank's data connection: {error}.")

    def _try_again(self, rank: int, why: str) -> None:
        """It may have been dropped in a crowd of strangers; if that goes on, there will be no connection."""
        if not self._comebacks.wait(rank, ROLE_DATA, time.monotonic(), patient=False):
            self._deliver(rank, -1, why)
