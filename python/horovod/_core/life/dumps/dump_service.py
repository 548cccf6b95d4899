"""Writes a dump of this rank when somebody asks: a stall, a signal, or `horovodrun`.

A thread that sleeps until one of three descriptors can be read: the core's, which stalls and the signal make readable
without any Python; the pipe of the launcher; and one to end it. So a dump comes while the main thread is blocked in the
core or runs a loop that never ends. When native code lets no Python run at all, the signal makes `faulthandler` write
the stacks, from C, and the launcher reads those.

Where there is no launcher that collects, dumps go to the directory of HOROVOD_DUMP_DIR, and rank 0 compares them;
without one, those that a signal asks for go to stderr.
"""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import select
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Optional

from horovod._core.life.session import Session
from horovod._dumps import paths

if TYPE_CHECKING:
    from horovod._dumps.values import Dump

_log: Final = logging.getLogger("horovod")
_STALL: Final = 1 << 32  # as the core counts
_OTHERS_S: Final = 1.0  # for the dumps of the other ranks
_SAME_STALL_S: Final = 5.0  # the news of one stall reach all ranks within it


_running: Optional[DumpService] = None


def begin(session: Session) -> None:
    """Serves a session that has just begun, unless nothing could ask it."""
    global _running
    _running = _start(session)


def end() -> None:
    """The session is about to end."""
    global _running
    service, _running = _running, None
    if service is not None:
        service.stop()


def forget() -> None:
    """In a forked child, which has no such thread."""
    global _running
    _running = None


def _start(session: Session) -> Optional[DumpService]:
    settings = session.settings
    call_fd = session.engine.dumps.call_fd()
    if call_fd < 0 or session.size == 1 or not (settings.dump_on_stall or settings.dump_signal != "none"):
        return None
    try:
        service = DumpService(session, call_fd)
        service.start()
    except (OSError, RuntimeError) as error:  # no descriptor, no room, no thread: the job can do without
        _log.debug("There will be no dumps of this rank: %s", error)
        return None
    return service


class DumpService:
    """See the head of the file.

    Args:
        session: of this rank.
        call_fd: the core's.
    """

    def __init__(self, session: Session, call_fd: int) -> None:
        self._session = session
        self._call_fd = call_fd
        self._started_in = _working_directory()
        named = session.settings.dump_directory
        self._named = Path(self._started_in, named) if named else None
        self._meeting = Path(session.meeting_directory) if session.meeting_directory else None
        self._ask_fd = -1
        self._number = paths.signal_number(session.settings.dump_signal)
        self._stacks_fd = -1
        self._stacks_path = Path()
        self._announced = False
        self._end_fd, self._ending_fd = os.pipe()
        try:
            if self._meeting is not None:
                with contextlib.suppress(OSError):
                    self._ask_fd = paths.open_own_pipe(paths.ask_pipe(self._meeting, session.rank))
            self._take_signal()
        except BaseException:
            self._close()
            raise
        self._thread = threading.Thread(target=self._serve, name="horovod-dumps", daemon=True)

    def start(self) -> None:
        """Begins to listen."""
        self._thread.start()

    def stop(self) -> None:
        """Listens no more."""
        os.close(self._ending_fd)
        self._ending_fd = -1
        if threading.current_thread() is not self._thread:
            self._thread.join(1.0)
        if not self._thread.is_alive():
            self._close()

    def _take_signal(self) -> None:
        if not self._number:
            return
        if not self._session.engine.dumps.on_signal(self._number):
            _log.debug("The program handles signal %d itself; it makes no dump.", self._number)
            return
        place = self._collector() or self._named
        if place is not None:
            with contextlib.suppress(OSError):
                paths.make_directory(place)
                self._stacks_path = paths.stacks_file(place, self._session.rank, os.getpid())
                self._stacks_fd = paths.open_stacks_file(self._stacks_path)
                # Its handler comes first and calls the core's.
                faulthandler.register(self._number, file=self._stacks_fd, all_threads=True, chain=True)

    def _serve(self) -> None:
        poller = select.poll()
        for fd in (self._call_fd, self._ask_fd, self._end_fd):
            if fd >= 0:
                poller.register(fd, select.POLLIN)
        while True:
            ready = {fd for fd, _ in poller.poll()}
            if self._end_fd in ready:
                return
            reason = self._reason(ready)
            if reason:
                try:
                    self._dump(reason)
                except Exception as error:  # a dump must never end a job, whatever it meets
                    _log.warning("This rank could not write its dump: %s: %s", type(error).__name__, error)

    def _reason(self, ready: set[int]) -> str:
        reason = ""
        if self._ask_fd in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._ask_fd, 4096)
            reason = "request"
        if self._call_fd in ready:
            with contextlib.suppress(BlockingIOError):
                calls = int.from_bytes(os.read(self._call_fd, 8), sys.byteorder)
                if calls % _STALL:
                    reason = "signal"
                elif self._session.settings.dump_on_stall:
                    reason = "stall"
        return reason

    def _dump(self, reason: str) -> None:
        # Not before they are needed, which is hardly ever: a rank that starts has no milliseconds to spare.
        from horovod._core.life.dumps import dump_writer
        from horovod._dumps import files, readable, values

        place = self._collector()
        dump = dump_writer.take(self._session, reason, self._started_in)
        if place is not None:
            files.write(paths.dump_file(place, dump.rank), values.to_json(dump))
            paths.tell(place, dump.rank)
        elif self._named is not None:
            self._keep(dump, self._named)
        elif reason == "signal":
            sys.stderr.write(readable.one_rank(dump))
        if self._stacks_fd >= 0:
            os.ftruncate(self._stacks_fd, 0)  # the dump has them

    def _keep(self, dump: Dump, place: Path) -> None:
        """No launcher collects."""
        from horovod._dumps import files, readable, values
        from horovod._dumps.compare import compare

        paths.make_directory(place)
        files.remove_old_drafts(place)
        path = paths.dump_file(place, dump.rank)
        since_s = time.time()
        files.write(path, values.to_json(dump))
        files.write(path.with_suffix(".txt"), readable.one_rank(dump))
        if not self._announced or dump.reason == "signal":
            self._announced = True
            sys.stderr.write(f"[rank {dump.rank}] Its dump ({dump.reason}): {path.with_suffix('.txt')}\n")
        if dump.rank == 0 and dump.reason == "stall":
            time.sleep(_OTHERS_S)
            dumps, absent = files.read_dumps(place, range(dump.size), since_s - _SAME_STALL_S)
            lines = compare(
                dumps, {rank: f"{why}: stopped, or its host writes elsewhere" for rank, why in absent.items()}
            )
            sys.stderr.write("[rank 0] Where the ranks are:\n" + "".join(f"  {line}\n" for line in lines))

    def _collector(self) -> Optional[Path]:
        """Where the launcher waits for dumps."""
        meeting = self._meeting
        return meeting if meeting is not None and (meeting / paths.NEWS).exists() else None

    def _close(self) -> None:
        if self._stacks_fd >= 0:
            faulthandler.unregister(self._number)
            os.close(self._stacks_fd)
            self._stacks_fd = -1
            self._stacks_path.unlink(missing_ok=True)
        for fd in (self._ask_fd, self._end_fd, self._ending_fd):
            if fd >= 0:
                os.close(fd)
        self._ask_fd = self._end_fd = self._ending_fd = -1


def _working_directory() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return ""
