"""The board that a rank keeps for its job, where no launcher does: a thread that sleeps until somebody posts.

Every rank, this one too, opens a connection and proves the job's secret; from then on each frame carries its code. The
connections stay as long as the processes live, so that the job may initialise again: the end of one tells that its rank
has ended. Once all ranks have come nobody listens any more. What a board is: `meeting.board`. Used by fact_exchange and
meeting_at_address; ranks come by `board_call`.

A board can also be open: any number of processes that hold the secret come and go, and the keeper numbers them. Used by
TensorFlow's data service, where two jobs meet.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import socket
import threading
import time
from collections.abc import Sequence
from typing import Final, Optional

from horovod._net import resources
from horovod._net.handshake import proofs
from horovod._net.handshake.boards import forked
from horovod._net.handshake.boards.readers import Readers
from horovod._net.handshake.frames import auth, messages
from horovod._net.handshake.frames.codes import FrameCodes
from horovod._net.handshake.frames.links import Link, LinkClosedError
from horovod._net.handshake.frames.messages import ROLE_BOARD
from horovod._net.handshake.lobby import Lobby
from horovod._net.handshake.visits import Visit
from horovod._net.meeting.deaths import ENDED_PREFIX
from horovod._net.meeting.entries import reader_of

_OTHER_DESCRIPTORS: Final = 320
# What stands is sent to all at once, and so rarely that sending to so many takes a small part of this thread's time.
_QUIET_S_PER_RANK: Final = 0.0001
_LONGEST_QUIET_S: Final = 0.25
_PARTING_S: Final = 1.0  # for the readers of an open board to hang up after its last news

# An entry of this board: a process said that it was this rank, and did not prove it; from where.
DOUBT_PREFIX: Final = "doubt."
# The first entry that a process hears from an open board, and no other one: its number there.
NUMBER: Final = "number"

log = logging.getLogger("horovod")


def credentials_of(secret: bytes, job_key: str, rank: int, size: int) -> auth.Credentials:
    """Of a rank on its way to the board, whose keeper counts as one rank more.

    Args:
        secret, job_key: of the job.
        rank: of the process; the keeper's is `size`.
        size: of the job.
    """
    return auth.Credentials(secret, auth.job_digest(f"{job_key}/board"), 0, rank, size + 1)


class KeptBoard:
    """See the head of the file.

    Args:
        credentials: of the keeper, by `credentials_of`.
        listener: where the ranks come; it is this object's.
        names: what the launcher calls each rank; None: the board is open.
        keeper: its name, for the log; empty: its rank.
    """

    def __init__(
        self, credentials: auth.Credentials, listener: socket.socket, names: Optional[Sequence[int]], keeper: str = ""
    ) -> None:
        self._is_open = names is None
        self._names = names or ()
        self._most = float("inf") if names is None else len(names)
        self._numbers = itertools.count()
        self._news: list[str] = []  # stands, and has not been sent yet
        self._quiet_until_s = 0.0
        self._come: set[int] = set()
        who = keeper or f"rank {credentials.rank}"
        self._lobby = Lobby(credentials, who, listener, self._take_visit, self._doubt)
        self._watch = self._lobby.watch
        self._readers = Readers(self._watch, self._stand, self._lost)
        self._ranks = self._readers.number_of
        self._stopped, self._stop = socket.socketpair()
        self._watch.add(self._stopped)
        self._thread = threading.Thread(target=self._serve, name="horovod-board", daemon=True)
        forked.closed.add(self)

    def start(self) -> None:
        """Begins to listen."""
        # A connection for each rank, for as many strangers as the door lets in, and what the program has open.
        resources.make_room_for(3 * len(self._names) + _OTHER_DESCRIPTORS)
        self._thread.start()

    def stop(self) -> None:
        """Ends it: the ranks that have come see that their board is gone. Returns when nobody listens any more."""
        with contextlib.suppress(OSError):  # it has ended by itself
            self._stop.send(b"\0")
        self._thread.join()

    def close(self) -> None:
        """In a forked child, which has no such thread: its copies would keep the connections open."""
        self._lobby.close()
        for sock in (*(link.sock for link in self._ranks), self._stopped, self._stop):
            sock.close()

    def _serve(self) -> None:
        try:
            while self._turn() and (self._ranks or len(self._come) < self._most):
                pass
            if self._is_open:
                self._part()
        except Exception:  # nobody waits for this thread: the ranks then see that their board is gone
            log.exception("the board of this job can no longer be kept")
        self.close()

    def _turn(self) -> bool:
        """Takes what comes next; False when this is the end."""
        for source in self._lobby.serve(self._quiet_until_s if self._news else float("inf")):
            if source is self._stopped:
                return False
            if isinstance(source, Link) and source in self._ranks:
                self._readers.hear(source)
        self._tell_news()
        return True

    def _part(self) -> None:
        """Lets all hear the last news before their connections are closed: what they post to a closed one makes the
        kernel forget what is on its way to them."""
        self._quiet_until_s = 0.0
        self._tell_news()
        self._lobby.leave()
        self._watch.remove(self._stopped)
        for link in self._ranks:
            with contextlib.suppress(OSError):  # it has gone
                link.sock.shutdown(socket.SHUT_WR)
        deadline = time.monotonic() + _PARTING_S
        while self._ranks and time.monotonic() < deadline:
            for source in self._lobby.serve(deadline):
                if isinstance(source, Link) and source in self._ranks:
                    self._readers.hear(source)

    # ---- connections

    def _take_visit(self, visit: Visit, message: messages.AnyMessage) -> bool:
        key = proofs.take(visit, message, self._is_expected)
        if key is not None:
            self._welcome(visit, key)
            self._readers.hear(visit.link)
        return key is not None

    def _is_expected(self, hello: messages.Hello) -> bool:
        return hello.role == ROLE_BOARD and (self._is_open or hello.from_rank not in self._come)

    def _doubt(self, visit: Visit, error: Exception) -> None:
        """A process that gave its rank and left after this side's proof may hold another secret. Anybody can do so:
        it is reported, and ends nothing."""
        is_rank = visit.rank in {*range(len(self._names))} - self._come
        if not (is_rank or self._is_open and visit.named) or not isinstance(error, LinkClosedError):
            return
        where = "an unknown address"
        with contextlib.suppress(OSError):
            where = str(visit.link.sock.getpeername()[0])
        claim = f" says that it is rank {visit.rank} of this job, and" if is_rank else ""
        self._lobby.report.tell(
            f"a process at {where}{claim} left after the proof of the secret here: it has a different secret"
        )
        if is_rank:
            self._stand(f"{DOUBT_PREFIX}{visit.rank}={where}")

    def _welcome(self, visit: Visit, key: bytes) -> None:
        link = self._lobby.visits.hand_over(visit)
        link.protect(FrameCodes(key, connector=False))
        rank = next(self._numbers) if self._is_open else visit.rank
        self._come.add(rank)
        self._readers.add(link, rank, *([messages.Post(f"{NUMBER}={rank}")] if self._is_open else []))
        if len(self._come) == self._most:
            self._lobby.leave()

    # ---- connected ranks

    def _stand(self, text: str) -> None:
        if not self._readers.standing.add(text):
            return
        reader = reader_of(text)
        if reader is None:
            self._news.append(text)
        for link in [link for link, rank in self._ranks.items() if rank == reader]:
            self._readers.send(link, messages.Post(text))

    def _tell_news(self) -> None:
        if not self._news or time.monotonic() < self._quiet_until_s:
            return
        news = list(messages.together(self._news))
        self._news.clear()
        for link in list(self._ranks):
            self._readers.send(link, *news)
        self._quiet_until_s = time.monotonic() + min(_QUIET_S_PER_RANK * len(self._ranks), _LONGEST_QUIET_S)

    def _lost(self, rank: int, why: str) -> None:
        if why:
            log.warning("rank %d was cut off from the job's board: %s", rank, why)
        self._stand(f"{ENDED_PREFIX}{rank if self._is_open else self._names[rank]}=ended")
