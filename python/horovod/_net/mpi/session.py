"""MPI in this process: initialised at most once, by us or by other code before us, and ended only if it was us.

All our calls are made by one thread of our own, which sleeps otherwise: so waiting for ranks that do not come has a
deadline, and Ctrl-C works. This also works with MPI libraries limited to one thread. Where the program has initialised
the library for one thread only, the calls are made by the thread that did. Once the core moves tensors by MPI, nobody
calls it here until the process ends. Used by fact_exchange and `_core.life`, which ends it.
"""

from __future__ import annotations

import logging
import os
import queue
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Callable, Final, NamedTuple, Optional

from horovod._net.failures import MeetingError, NetError, StartTimeoutError
from horovod._net.mpi.gathering import Answer, gather
from horovod._net.mpi.library import Library, World, open_library

log = logging.getLogger("horovod")

_LOOK_S: Final = 0.25
_EXITED_PEER_GRACE_S: Final = 3.0  # grace for a peer that already exited cleanly
_OTHERS_CALL: Final = "waits until all ranks of the job have called hvd.init()"


class Wanted(NamedTuple):
    """How MPI is to be used.

    Attributes:
        library: that the user names; None: it is looked for.
        threads: what to ask for, by its name in `Threads`: "multiple", so that the program may use MPI too;
            "serialized": several threads, one at a time; "single".
        family: of the launcher's MPI; empty where every library will do.
    """

    library: Optional[str] = None
    threads: str = "multiple"
    family: str = ""


class Session:
    """See the head of the file; one per process.

    Args:
        wanted: how MPI is to be used.
        environ: of this process.

    Raises:
        MeetingError: there is no library that can be used.
    """

    def __init__(self, wanted: Wanted, environ: Mapping[str, str]) -> None:
        self.library: Library = open_library(wanted.library, wanted.family, environ)
        self.pid = os.getpid()
        self._wanted = wanted
        self._is_ours = False  # to be finalised
        self._is_foreign = self.library.initialized()
        if self.library.finalized():
            raise MeetingError(
                f"{self.library.described()} has been finalised in this process and cannot be started again: call "
                "hvd.init() before MPI.Finalize()."
            )
        if self.library.warning():
            log.warning("%s", self.library.warning())
        self.stage = ""
        self.serves = False  # the ranks have met through it, or it moves their tensors
        self._tasks: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._thread: Optional[threading.Thread] = None
        self._pending: dict[Optional[tuple[int, ...]], _Task] = {}
        self._begun: list[_Task] = []  # for which others are waited, and nobody here any more
        self._communicators: dict[tuple[int, ...], int] = {}

    def gather(self, ranks: Optional[Sequence[int]], rank: int, own: bytes, answer: Answer, timeout_s: float) -> Any:
        """As `gathering.gather`, once per process and ranks: a call whose time was over is taken up by the next one.

        Raises:
            StartTimeoutError: ranks do not come.
            MeetingError: MPI fails, or is another one than the launcher's.
        """
        key = None if ranks is None else tuple(ranks)
        task = self._pending.get(key)
        if task is None:
            task = self._pending[key] = _Task(lambda: gather(self._started(), ranks, rank, own, answer))
            self._perform(task)
        if not task.over.wait(timeout_s):
            raise StartTimeoutError(
                f"The ranks did not meet through MPI within {timeout_s:g} s. {self.stage} "
                "Check that every rank calls hvd.init() and that none has failed; "
                "HOROVOD_START_TIMEOUT (seconds) allows more time."
            )
        del self._pending[key]
        self.serves = True
        return task.result()

    def world(self, timeout_s: float) -> World:
        """This process among those that MPI has started. Blocks as MPI_Init does; raises as `gather`."""
        world: World = self._collective(lambda: self._started().world(), timeout_s)
        return world

    def communicator(self, ranks: Sequence[int], timeout_s: float) -> int:
        """A communicator of these ranks of MPI's world, in this order, as a number; one for all calls of this process.

        Collective over them, and raises as `gather`.
        """
        key = tuple(ranks)
        if key not in self._communicators:
            made = self._collective(lambda: self._started().communicator(key), timeout_s)
            self._communicators[key] = int.from_bytes(bytes(made), sys.byteorder)
        return self._communicators[key]

    def why_not_by_turns(self) -> str:
        """Why threads of ours may not call the library one after the other; empty: they may."""
        level, threads = self.library.thread_level(), self.library.threads
        if level >= threads.multiple or level >= threads.serialized and not self._is_foreign:
            return ""
        if self._is_foreign:
            return (
                f"{self.library.described()} was initialised by the program with less than MPI_THREAD_MULTIPLE, but "
                "two threads would call it at once. Initialise it with that level, or call hvd.init() first"
            )
        return f"{self.library.described()} grants less than MPI_THREAD_SERIALIZED"

    def thread_multiple(self) -> bool:
        """Whether MPI was initialised with full multithreading."""
        return self.library.thread_level() >= self.library.threads.multiple

    def finalize(self, has_peer_exited: Callable[[], bool]) -> None:
        """Ends MPI if it was started here. Blocks until all ranks finalise it, as MPI demands; so not where some ranks
        have not even met the others, and only for a few seconds once a peer has exited.

        Args:
            has_peer_exited: a rank has exited, perhaps without finalising MPI.
        """
        stuck = any(not task.over.is_set() for task in (*self._pending.values(), *self._begun))
        if self._is_ours and not stuck and os.getpid() == self.pid and not self.library.finalized():
            self._is_ours = False
            task = _Task(self.library.finalize)
            self._perform(task)
            left_s = _EXITED_PEER_GRACE_S
            while left_s > 0 and not task.over.wait(_LOOK_S):
                left_s -= _LOOK_S if has_peer_exited() else 0

    def _started(self) -> Library:
        """In the thread that makes the calls: the library, initialised."""
        library = self.library
        if not library.initialized():
            self.stage = f"MPI_Init of {library.described()} {_OTHERS_CALL}."
            library.init(getattr(library.threads, self._wanted.threads))
            self._is_ours = True
        self.stage = f"A collective of {library.described()} {_OTHERS_CALL}."
        return library

    def _collective(self, work: Callable[[], Any], timeout_s: float) -> Any:
        task = _Task(work)
        self._begun.append(task)
        self._perform(task)
        if not task.over.wait(timeout_s):
            limit_s = round(timeout_s, 1)  # what is left of the start timeout
            raise StartTimeoutError(f"MPI initialisation did not finish within {limit_s:g} s. {self.stage}")
        self._begun.remove(task)
        return task.result()

    def _perform(self, task: _Task) -> None:
        if self._is_foreign and self.library.thread_level() < self.library.threads.serialized:
            if not self.library.is_main_thread():
                raise MeetingError(
                    f"{self.library.described()} was initialised for one thread, and hvd.init() is called by another. "
                    "Call it in the thread that initialised MPI, or initialise MPI with MPI_THREAD_MULTIPLE."
                )
            task.run()
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="horovod-mpi", daemon=True)
            self._thread.start()
        self._tasks.put(task.run)

    def _serve(self) -> None:
        while True:
            self._tasks.get()()


class _Task:
    """A call that another thread makes."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self.over = threading.Event()
        self._work = work
        self._value: Any = None
        self._error: Optional[Exception] = None

    def run(self) -> None:
        try:
            self._value = self._work()
        except Exception as error:  # raised again in the thread that waits
            self._error = error
        self.over.set()

    def result(self) -> Any:
        if isinstance(self._error, NetError):
            raise self._error
        if self._error is not None:
            raise MeetingError(f"MPI could not be used: {self._error}") from self._error
        return self._value


_session: Optional[Session] = None


def of_this_process(wanted: Wanted) -> Session:
    """The session of this process; the first call makes it.

    Raises:
        MeetingError: there is no library that can be used, or a forked child asks.
    """
    global _session
    if _session is None:
        _session = Session(wanted, os.environ)
    if _session.pid != os.getpid():
        raise MeetingError("This process was forked from one that uses MPI, which a forked child cannot.")
    return _session


def current() -> Optional[Session]:
    """The session of this process, if it has one."""
    return _session if _session is not None and _session.pid == os.getpid() else None
