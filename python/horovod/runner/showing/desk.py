"""Where a launcher is asked how its job is: by a Unix socket in the job's directory, and by `endpoint`.

Used by `cli` and `function`, which make one, by `launchers`, which let it listen, and by `supervision`, which serves
it. Each client has a thread of its own: the loop that follows the job only hands out what the ranks have counted, once
for all clients that have asked meanwhile.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Callable, Final, NamedTuple, Optional

from horovod._dumps import paths
from horovod.runner.job import Job
from horovod.runner.live.figures import Reading, to_wire
from horovod.runner.machines.limits import reason_of

if TYPE_CHECKING:
    from horovod.runner.job_socket import JobSocket

LAYOUT: Final = 1  # of an answer
_MOST_CLIENTS: Final = 8  # at a time
_IDLE_S: Final = 10.0  # of a client that neither asks nor reads
_ANSWER_S: Final = 3.0  # for the launcher's loop
_FRESH_S: Final = 2.5
_AGENTS_S: Final = 1.2  # until agents that were not asked before have answered
_MOST_COMMAND: Final = 200

_log: Final = logging.getLogger("horovod.runner")


def abstract_names() -> str:
    """How the names begin under which launchers of this user listen that have no directory."""
    return f"horovod-status-{os.geteuid()}-"


class Snapshot(NamedTuple):
    """What is known of a job at a moment.

    Attributes:
        at_s: on the monotonic clock.
        readings: by the number under which a rank was started.
        left: the numbers of ranks that run.
        hosts: by number.
    """

    at_s: float
    readings: Mapping[int, Reading] = MappingProxyType({})
    left: frozenset[int] = frozenset()
    hosts: Mapping[int, str] = MappingProxyType({})


class Desk:
    """See the head of the file.

    Attributes:
        fd: readable when `serve` has something to do.
    """

    def __init__(self) -> None:
        from horovod.runner.loop import Loop  # ctypes is needed only where a job starts

        self._loop = Loop()
        self.fd = self._loop.fileno()
        self._bell, self._ringing = os.pipe()
        for end in (self._bell, self._ringing):
            os.set_blocking(end, False)
        self._loop.watch(self._bell, self._hear)
        self._asked = False
        self._news = threading.Condition()
        self._snapshot = Snapshot(0.0)
        self._over = False
        self._job: Optional[Job] = None
        self._over_hosts = False
        self._began_s = time.monotonic()
        self._socket: Optional[JobSocket] = None
        self._ticks = False
        self._clients = threading.BoundedSemaphore(_MOST_CLIENTS)

    def listen(self, job: Job, directory_fd: int = -1) -> None:
        """From here on others may ask about this job.

        Args:
            job: that runs.
            directory_fd: of its directory, for the socket; -1: its ranks are on several hosts, what they count comes
                from agents, and nothing here would remove a directory if this process were killed.
        """
        from horovod.runner.job_socket import JobSocket

        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._job, self._over_hosts, self._began_s = job, directory_fd < 0, time.monotonic()
        # The kernel says whose process comes; another user's is shut out.
        name = paths.STATUS if directory_fd >= 0 else f"{abstract_names()}{os.urandom(8).hex()}"
        try:
            self._socket = JobSocket(self._loop, directory_fd, name, "The status of the job", self._admit)
        except OSError as error:  # the job itself does not need it
            _log.warning(
                "The launcher cannot open its socket for horovodrun --status: %s. The job runs without status.",
                reason_of(error.errno or 0),
            )

    def serve(self, figures: Callable[[], Mapping[int, Reading]], left: Collection[int]) -> None:
        """Hands out what is known now, if somebody has asked. For the thread that follows the job.

        Args:
            figures: of a crew.
            left: the numbers of the ranks that run.
        """
        self._loop.turn(0)
        if self._socket is not None and self._socket.again_s is not None and not self._ticks:
            self._ticks = True  # from here on; a launcher that nobody disturbs sleeps
            self._loop.tick(self._look_again)
        if not self._asked:
            return
        self._asked = False
        readings = figures()
        job = self._job
        hosts = {} if job is None else {number: job.host_of(number) for number in readings}
        with self._news:
            self._snapshot = Snapshot(time.monotonic(), readings, frozenset(left), hosts)
            self._news.notify_all()

    def ask(self) -> Optional[Snapshot]:
        """What is known of the job. For any other thread.

        Returns:
            None: the job is over, or its launcher is stopped.
        """
        found = self._ask()
        if found is not None and self._over_hosts and not _is_fresh(found):
            time.sleep(_AGENTS_S)
            found = self._ask() or found
        return found

    @property
    def job(self) -> dict[str, Any]:
        """What the job is, in words and numbers. The size of an elastic job is that of its latest snapshot."""
        job, latest = self._job, self._snapshot
        elastic = bool(job and job.settings.elastic)
        words = " ".join(job.command) if job else ""
        return {
            "pid": os.getpid(),
            "command": words if len(words) <= _MOST_COMMAND else words[: _MOST_COMMAND - 3] + "...",
            "size": len(latest.left) if elastic and latest.left else job.size if job else 0,
            "elastic": elastic,
            "seconds": round(time.monotonic() - self._began_s, 1),
        }

    def close(self) -> None:
        """Answers nobody any more. May be called twice."""
        if self._socket is not None:
            self._socket.close()  # first: a client that is let go may come again at once
        with self._news:
            if self._over:
                return
            self._over = True
            self._news.notify_all()
        self._loop.close()
        os.close(self._bell)
        os.close(self._ringing)

    def _ask(self) -> Optional[Snapshot]:
        with self._news:
            if self._over:
                return None
            asked_s = time.monotonic()
            with contextlib.suppress(BlockingIOError):  # it rings already
                os.write(self._ringing, b"?")
            self._news.wait_for(lambda: self._over or self._snapshot.at_s >= asked_s, _ANSWER_S)
            return self._snapshot if self._snapshot.at_s >= asked_s else None

    def _look_again(self) -> None:
        if self._socket is not None:
            self._socket.look_again()

    def _hear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._bell, 4096)
        self._asked = True

    def _admit(self, connection: socket.socket, pid: int) -> None:
        del pid
        if not self._clients.acquire(blocking=False):
            connection.close()
            return
        client = threading.Thread(target=self._speak, args=(connection,), name="horovod-status", daemon=True)
        try:
            client.start()
        except RuntimeError:  # this user has no room for another thread
            self._clients.release()
            connection.close()

    def _speak(self, connection: socket.socket) -> None:
        """One line of JSON for each thing that a client writes."""
        import json

        try:
            with connection, contextlib.suppress(OSError):
                connection.settimeout(_IDLE_S)
                while connection.recv(64):
                    snapshot = self.ask()
                    if snapshot is None:
                        return
                    connection.sendall(json.dumps(answer(self.job, snapshot)).encode() + b"\n")
        finally:
            self._clients.release()


def answer(job: Mapping[str, Any], snapshot: Snapshot) -> dict[str, Any]:
    """The answer to a client; `status` reads it."""
    ranks = [
        [number, reading.host or snapshot.hosts.get(number, ""), *to_wire(reading.figures)]
        for number, reading in snapshot.readings.items()
        if number in snapshot.left
    ]
    return {"layout": LAYOUT, "job": dict(job), "ranks": ranks}


def _is_fresh(snapshot: Snapshot) -> bool:
    known = [snapshot.readings[number] for number in snapshot.left if number in snapshot.readings]
    return len(known) == len(snapshot.left) and all(snapshot.at_s - reading.at_s < _FRESH_S for reading in known)
