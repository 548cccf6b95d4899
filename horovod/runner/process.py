"""The launcher's side of `keeper`: starts it and the ranks, sends signals, hears how ranks end.

Used by `launchers.local`. One keeper per job and host.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Optional, Union

_KEEPER: Final = Path(__file__).with_name("keeper.py")


@dataclass(frozen=True)
class RankSpec:
    """What one rank gets of its own: its number, its variables and the pipes of its output."""

    rank: int
    env: Mapping[str, str]
    stdout_fd: int
    stderr_fd: int


@dataclass(frozen=True)
class Started:
    """The rank's program runs."""

    rank: int
    pid: int


@dataclass(frozen=True)
class Refused:
    """The rank's program could not be executed."""

    rank: int
    error: int


@dataclass(frozen=True)
class Exited:
    """The rank has ended; events come in the order of deaths."""

    rank: int
    status: int
    at_s: float


@dataclass(frozen=True)
class Done:
    """All processes of the job are gone, and its directory too. `lost`: the keeper itself was killed."""

    lost: bool = False


Event = Union[Started, Refused, Exited, Done]


class RankProcesses:
    """The processes of one job on this host.

    Args:
        command: path of the program, then its argument vector (argv[0] first).
        env: variables of all ranks.
        specs: one per rank; their pipe ends belong to the keeper afterwards and are closed here.
        cwd: working directory of the ranks.
        directory: the job's directory, removed when all is over.
    """

    def __init__(
        self, command: Sequence[str], env: Mapping[str, str], specs: Sequence[RankSpec], cwd: str, directory: Path
    ) -> None:
        self._socket, theirs = socket.socketpair()
        pipe_fds = [fd for spec in specs for fd in (spec.stdout_fd, spec.stderr_fd)]
        try:
            # -I and -S: neither the user's variables nor site-packages can get in its way, and it starts in 20 ms.
            self._keeper = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_KEEPER), str(theirs.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno(), *pipe_fds],
                start_new_session=True,
                cwd="/",
            )
        finally:
            theirs.close()
            for fd in pipe_fds:
                os.close(fd)
        self._received = b""
        self._pids: dict[int, int] = {}
        self._say(
            {
                "start": {
                    "command": list(command),
                    "env": dict(env),
                    "cwd": cwd,
                    "directory": str(directory),
                    "ranks": [
                        {"rank": spec.rank, "env": dict(spec.env), "stdout": spec.stdout_fd, "stderr": spec.stderr_fd}
                        for spec in specs
                    ],
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

    def signal(self, ranks: Iterable[int], number: int) -> None:
        """Sends a signal to the process groups of these ranks; those that have ended are passed over."""
        self._say({"signal": int(number), "ranks": list(ranks)})

    def finish(self) -> None:
        """Asks the keeper to kill what is left, remove the directory and go; `Done` follows."""
        self._say({"finish": True})

    def close(self) -> None:
        """Waits for the keeper's end. Closing the socket makes it kill whatever still runs."""
        self._socket.close()
        self._keeper.wait()

    def _event(self, message: dict[str, float]) -> Event:
        if "started" in message:
            self._pids[int(message["started"])] = int(message["pid"])
            return Started(int(message["started"]), int(message["pid"]))
        if "refused" in message:
            return Refused(int(message["refused"]), int(message["errno"]))
        if "exited" in message:
            self._pids.pop(int(message["exited"]), None)
            return Exited(int(message["exited"]), int(message["status"]), message["at"])
        return Done()

    def _say(self, message: dict[str, object]) -> None:
        with contextlib.suppress(OSError):  # the keeper is gone; `events` will say so
            self._socket.sendall(json.dumps(message).encode() + b"\n")

    def _kill_orphans(self) -> None:
        # Without a keeper the ranks get SIGKILL by their parent-death signal; their process groups get it from here.
        for pid in self._pids.values():
            with contextlib.suppress(OSError):
                os.killpg(pid, 9)
        self._pids.clear()


def resolve(program: str, path: Optional[str], cwd: str) -> Optional[str]:
    """Where the program is, as a shell would find it; None when it is not there or not executable."""
    import shutil

    if os.sep in program:
        found = os.path.join(cwd, program)
        return found if os.access(found, os.X_OK) and not os.path.isdir(found) else None
    return shutil.which(program, path=path)
