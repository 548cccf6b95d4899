"""The launcher's side of `keeper`: starts it and the ranks, sends signals, hears how ranks end.

Used by `launchers.local` and `remote.agent`. One keeper per job and host.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from horovod.runner.crew import Done, Event, Exited, Refused, Started
from horovod.runner.limits import Limits, reason_of
from horovod.runner.runtime_directory import JobDirectory

_KEEPER: Final = Path(__file__).with_name("keeper.py")
_ORPHANS_S: Final = 0.5  # how long to kill what goes on forking


@dataclass(frozen=True)
class RankSpec:
    """What one rank gets of its own: its number, its variables and the pipes of its output.

    Attributes:
        shared_fd: a descriptor that all ranks inherit under its number, or -1. It stays the caller's.
        own_fd: one that this rank alone inherits under its number, or -1.
    """

    rank: int
    env: Mapping[str, str]
    stdout_fd: int
    stderr_fd: int
    shared_fd: int = -1
    own_fd: int = -1

    def own_fds(self) -> list[int]:
        """The descriptors that belong to the keeper."""
        return [fd for fd in (self.stdout_fd, self.stderr_fd, self.own_fd) if fd >= 0]

    def inherited_fds(self) -> list[int]:
        """The descriptors that the rank's program finds under the same numbers."""
        return [fd for fd in (self.shared_fd, self.own_fd) if fd >= 0]

    def message(self) -> dict[str, Any]:
        """For the keeper."""
        return {
            "rank": self.rank,
            "env": dict(self.env),
            "stdout": self.stdout_fd,
            "stderr": self.stderr_fd,
            "inherited": self.inherited_fds(),
            "closed": self.own_fds(),
        }


def _start_keeper(control_fd: int, directory: JobDirectory, fds: Sequence[int]) -> subprocess.Popen[bytes]:
    # -I and -S: neither the user's variables nor site-packages can get in its way, and it starts in 20 ms.
    return subprocess.Popen(
        [sys.executable, "-I", "-S", str(_KEEPER), str(control_fd), str(os.getpid()), str(directory.path)],
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
        try:
            self._socket, theirs = socket.socketpair()
            with theirs, contextlib.ExitStack() as undo:
                undo.callback(self._socket.close)
                self._keeper = _start_keeper(theirs.fileno(), directory, [*pipe_fds, *shared_fds])
                undo.pop_all()
        except OSError as error:
            raise OSError(f"The launcher cannot start a process: {reason_of(error.errno or 0)}.") from error
        finally:
            for fd in pipe_fds:
                os.close(fd)
        self._received = b""
        self._say(
            {
                "start": {
                    "command": list(command),
                    "env": dict(env),
                    "cwd": cwd,
                    "lock": directory.lock_fd,
                    "open_files": open_files,
                    "ranks": [spec.message() for spec in specs],
                }
            }
        )

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
            self._kill_orphans()
            return [Done(lost=True)]
        *lines, self._received = (self._received + data).split(b"\n")
        return [self._event(json.loads(line)) for line in lines]

    def taken(self) -> None:
        """Nothing to do: the output is in pipes, which hold the ranks back when nobody reads them."""

    def signal(self, ranks: Iterable[int], number: int) -> None:
        """Sends a signal to the process groups of these ranks; those that have ended are passed over."""
        self._wake()
        self._say({"signal": int(number), "ranks": list(ranks)})

    def pause(self) -> None:
        """Nothing: the keeper does not mind a launcher that stands still."""

    def resume(self) -> None:
        """Nothing."""

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
            return Started(int(message["started"]), int(message["pid"]))
        if "refused" in message:
            return Refused(int(message["refused"]), int(message["errno"]), bool(message["forked"]))
        if "exited" in message:
            return Exited(int(message["exited"]), int(message["status"]), message["at"], message["how"])
        return Done()

    def _say(self, message: dict[str, object]) -> None:
        with contextlib.suppress(OSError):  # the keeper is gone; `events` will say so
            self._socket.sendall(json.dumps(message).encode() + b"\n")

    def _wake(self) -> None:
        # Somebody may have stopped the keeper (SIGSTOP): it is the only one that may reap the ranks, so it must go on.
        # It is our child and not yet waited for, so its pid is its own.
        self._keeper.send_signal(signal.SIGCONT)

    def _kill_orphans(self) -> None:
        # Without a keeper the ranks get SIGKILL by their parent-death signal; what they have left behind gets it from
        # here. It is in the keeper's session, whose number is taken until the keeper is waited for.
        deadline = time.monotonic() + _ORPHANS_S
        while (orphans := _living_of_session(self._keeper.pid)) and time.monotonic() < deadline:
            for pid in orphans:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.005)


def _living_of_session(session: int) -> list[int]:
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            state, _, _, number = Path("/proc", name, "stat").read_bytes().rpartition(b")")[2].split()[:4]
            if int(number) == session and state not in b"ZX":
                found.append(int(name))
    return found
