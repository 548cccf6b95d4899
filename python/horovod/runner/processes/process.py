"""The launcher's side of `keeper`: starts it and the ranks, sends signals, hears how ranks end.

Used by `launchers.local` and `remote.agent`. One keeper per job and host.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Optional

from horovod._dumps import paths
from horovod.runner.live.figures import Reading
from horovod.runner.machines.limits import Limits, reason_of
from horovod.runner.processes import keeper, orphans, page_reader
from horovod.runner.processes.crew import Done, Event, Exited, Refused, Started
from horovod.runner.processes.runtime_directory import JobDirectory
from horovod.runner.processes.vitals import Vitals
from horovod.runner.processes.vitals import read as read_vitals

_STOPPING_S: Final = 0.5  # for a signal to stop a rank


class RankSpec(NamedTuple):
    """What one rank gets of its own: its number, its variables, the pipes of its output, and perhaps an input.

    Attributes:
        shared_fd: a descriptor that all ranks inherit under its number, or -1. It stays the caller's.
        own_fd: one that this rank alone inherits under its number, or -1.
        stdin_fd: its standard input, or -1: it has none.
    """

    rank: int
    env: Mapping[str, str]
    stdout_fd: int
    stderr_fd: int
    shared_fd: int = -1
    own_fd: int = -1
    stdin_fd: int = -1

    def own_fds(self) -> list[int]:
        """The descriptors that belong to the keeper."""
        return [fd for fd in (self.stdin_fd, self.stdout_fd, self.stderr_fd, self.own_fd) if fd >= 0]

    def inherited_fds(self) -> list[int]:
        """The descriptors that the rank's program finds under the same numbers."""
        return [fd for fd in (self.shared_fd, self.own_fd) if fd >= 0]

    def message(self) -> dict[str, Any]:
        """For the keeper."""
        return {
            "rank": self.rank,
            "env": {str(name): str(value) for name, value in self.env.items()},
            "stdin": self.stdin_fd,
            "stdout": self.stdout_fd,
            "stderr": self.stderr_fd,
            "inherited": self.inherited_fds(),
            "closed": self.own_fds(),
        }


def _start_keeper(control_fd: int, directory: JobDirectory, fds: Sequence[int]) -> subprocess.Popen[bytes]:
    # -I and -S: neither the user's variables nor site-packages can get in its way, and it starts in 15 ms.
    return subprocess.Popen(
        [sys.executable, "-I", "-S", keeper.__file__, str(control_fd), str(os.getpid()), str(directory.path)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=[control_fd, directory.lock_fd, *fds],
        start_new_session=True,
        cwd="/",
    )


class RankProcesses:
    """The processes of one job on this host; a crew.

    Args:
        command: path of the program, then its argument vector (argv[0] first).
        env: variables of all ranks.
        specs: one per rank; their pipe ends belong to the keeper afterwards and are closed here.
        cwd: working directory of the ranks.
        directory: the job's directory, removed when all is over.
        open_files: soft and hard limit of the ranks' open files.

    Attributes:
        patience_s: how long `events` may take to end what a keeper that was killed has left.

    Raises:
        OSError: the keeper cannot be started.
    """

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        specs: Sequence[RankSpec],
        cwd: str,
        directory: JobDirectory,
        open_files: Limits,
    ) -> None:
        pipe_fds = [fd for spec in specs for fd in spec.own_fds()]
        shared_fds = {spec.shared_fd for spec in specs} - {-1}
        # Ranks that read a terminal, and their processes.
        self._readers = {spec.rank: 0 for spec in specs if spec.stdin_fd >= 0 and os.isatty(spec.stdin_fd)}
        try:
            self._socket, theirs = socket.socketpair()
            with theirs, contextlib.ExitStack() as undo:
                undo.callback(self._socket.close)
                self._others = orphans.children()
                self._keeper = _start_keeper(theirs.fileno(), directory, [*pipe_fds, *shared_fds])
                undo.pop_all()
        except OSError as error:
            raise OSError(f"The launcher cannot start a process: {reason_of(error.errno or 0)}.") from error
        finally:
            for fd in pipe_fds:
                os.close(fd)
        self._received = bytearray()
        self._directory = directory.path
        self._pids: dict[int, int] = {}
        self._last_readings: dict[int, Reading] = {}  # of ranks that have ended
        self.patience_s = keeper.KILL_PATIENCE_S
        self._say(
            {
                "start": {
                    "command": [str(word) for word in command],  # a word may be of a class of its own
                    "env": {str(name): str(value) for name, value in env.items()},
                    "cwd": cwd,
                    "lock": directory.lock_fd,
                    "open_files": open_files,
                    "ranks": [spec.message() for spec in specs],
                }
            }
        )

    def add(self, spec: RankSpec) -> None:
        """Starts one more rank, whose pipe ends belong to the keeper afterwards and are closed here. It must not have a
        standard input."""
        self._wake()
        message = keeper.packed({"further": spec.message()})
        try:
            sent = socket.send_fds(self._socket, [message], spec.own_fds())
            self._socket.sendall(message[sent:])
        except OSError:
            pass  # the keeper is gone; `events` will say so
        finally:
            for fd in spec.own_fds():
                os.close(fd)

    def next_s(self) -> Optional[float]:
        """Nothing happens by time alone."""
        return None

    def fileno(self) -> int:
        """Descriptor that is readable when `events` has something."""
        return self._socket.fileno()

    def events(self) -> list[Event]:
        """What has happened since. Blocks when nothing has."""
        try:
            data = self._socket.recv(1 << 16)
        except ConnectionError:
            data = b""
        if not data:
            # The ranks get SIGKILL by their parent-death signal; what they have left behind gets it from here.
            orphans.end_all(self._keeper.pid, self._others, self.patience_s)
            return [Done(lost=True)]
        self._received += data
        return [self._event(message) for message in keeper.unpacked(self._received)]

    def taken(self) -> None:
        """Nothing to do: the output is in pipes, which hold the ranks back when nobody reads them."""

    def signal(self, ranks: Iterable[int], number: int) -> None:
        """Sends a signal to the process groups of these ranks; those that have ended are passed over."""
        self._wake()
        self._say({"signal": int(number), "ranks": list(ranks)})

    def beat(self, silence_s: float) -> None:
        """Tells the keeper that this process lives: from the first time on, it expects that every second, and gives
        this process up after so many without it."""
        with contextlib.suppress(OSError):  # a keeper that is stopped reads nothing
            self._socket.send(keeper.packed({"alive": silence_s}), socket.MSG_DONTWAIT)

    def pause(self) -> None:
        """The keeper does not mind a launcher that stands still. But a rank that reads the terminal stands still, too:
        what is typed there now is for the shell."""
        if self._readers:
            self.signal(self._readers, signal.SIGSTOP)
            deadline_s = time.monotonic() + _STOPPING_S
            while not all(map(_stands_still, self._readers.values())) and time.monotonic() < deadline_s:
                time.sleep(0.001)

    def resume(self) -> None:
        """See `pause`."""
        if self._readers:
            from horovod.runner.processes import keyboard  # few jobs need it

            keyboard.come_to_front(0)
            self.signal(self._readers, signal.SIGCONT)

    def vitals(self) -> Mapping[int, Optional[Vitals]]:
        """What the ranks have used by now."""
        found = {rank: paths.find_stacks_file(self._directory, rank) for rank in self._pids}
        return read_vitals(self._pids, {rank: each[1] for rank, each in found.items() if each})

    def figures(self) -> Mapping[int, Reading]:
        """What the ranks have counted; of those that have ended, the last."""
        return {**self._last_readings, **self.figures_of_running()}

    def figures_of_running(self) -> Mapping[int, Reading]:
        """What the ranks that run have counted."""
        return page_reader.readings(self._directory, self._pids)

    def last_reading(self, rank: int) -> Optional[Reading]:
        """What a rank that has ended had counted; None: it had not connected."""
        return self._last_readings.get(rank)

    def finish(self) -> None:
        """Asks the keeper to kill what is left, remove the directory and go; `Done` follows."""
        self._wake()
        self._say({"finish": True})

    def close(self) -> None:
        """Waits for the keeper's end. Closing the socket makes it kill whatever still runs."""
        self._wake()
        self._socket.close()
        self._keeper.wait()

    def _event(self, message: dict[str, Any]) -> Event:
        if "started" in message:
            rank, pid = int(message["started"]), int(message["pid"])
            self._pids[rank] = pid
            if rank in self._readers:
                self._readers[rank] = pid
            return Started(rank, pid)
        if "refused" in message:
            return Refused(int(message["refused"]), int(message["errno"]), bool(message["forked"]))
        if "exited" in message:
            rank, status, peak = (int(message[key]) for key in ("exited", "status", "peak"))
            self._pids.pop(rank, None)
            self._last_readings.update(page_reader.readings(self._directory, [rank]))
            return Exited(rank, status, message["at"], message["how"], peak)
        return Done()

    def _say(self, message: dict[str, object]) -> None:
        with contextlib.suppress(OSError):  # the keeper is gone; `events` will say so
            self._socket.sendall(keeper.packed(message))

    def _wake(self) -> None:
        # Somebody may have stopped the keeper (SIGSTOP): it is the only one that may reap the ranks, so it must go on.
        # It is our child and not yet waited for, so its pid is its own.
        self._keeper.send_signal(signal.SIGCONT)


def _stands_still(pid: int) -> bool:
    """It is stopped, or gone."""
    try:
        return Path("/proc", str(pid), "stat").read_bytes().rpartition(b")")[2].split()[0] not in b"RSDW"
    except OSError:
        return True
