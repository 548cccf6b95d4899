"""`horovodrun --status`: the running jobs of this user, one screen, again every second on a terminal.

It asks each launcher by the socket in its private directory; `desk` answers.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Optional

from horovod._net.identity import peer_credentials
from horovod.runner.display import standard_streams
from horovod.runner.live.figures import Reading, from_wire, is_on_wire
from horovod.runner.live.pages import as_data, screen
from horovod.runner.live.table import earlier, rows
from horovod.runner.processes import runtime_directory
from horovod.runner.showing.desk import LAYOUT, abstract_names

_EVERY_S: Final = 1.0
_ANSWER_S: Final = 2.0  # for all launchers together; one over hosts asks its agents first
_MOST_BYTES: Final = 64 << 20
_CLEAR: Final = "\x1b[H\x1b[J"


class _Launcher:
    """One job's launcher, as it is asked again and again."""

    def __init__(self, place: str) -> None:
        self._socket, self.pid = _connected(place)
        self._received = bytearray()
        self._asking: Optional[threading.Thread] = None
        self.has_gone = False
        self.job: Mapping[str, Any] = {}
        self._older: dict[int, Reading] = {}
        self._newer: dict[int, Reading] = {}

    def ask(self) -> None:
        """Asks for its next answer, unless it still owes the one before."""
        if not self.is_silent:
            self._asking = threading.Thread(target=self._take_answer, name="horovod-status", daemon=True)
            self._asking.start()

    def await_answer(self, seconds: float) -> None:
        """Waits so long for it."""
        if self._asking is not None:
            self._asking.join(max(0.0, seconds))

    @property
    def is_silent(self) -> bool:
        """It has been asked, and has not answered yet."""
        return self._asking is not None and self._asking.is_alive()

    def _take_answer(self) -> None:
        try:
            self._take()
        except (OSError, ValueError, KeyError, TypeError):
            self.has_gone = True

    def _take(self) -> None:
        self._socket.sendall(b"?")
        while b"\n" not in self._received:
            data = self._socket.recv(1 << 16)
            if not data or len(self._received) > _MOST_BYTES:
                raise ConnectionError("the launcher has gone")
            self._received += data
        line, _, rest = bytes(self._received).partition(b"\n")
        self._received[:] = rest
        told = json.loads(line)
        if told.get("layout") != LAYOUT:
            raise ConnectionError("the launcher has another version")
        now_s = time.monotonic()
        latest = {
            number: Reading(from_wire(counted), now_s, host)
            for number, host, *counted in told["ranks"]
            if is_on_wire(counted)
        }
        self.job, self._older, self._newer = told["job"], earlier(self._older, self._newer, latest), latest

    def rows(self) -> list[Any]:
        """Of the time between the last two answers."""
        return rows(self._newer, self._older, {}, elastic=self.job["elastic"])

    def close(self) -> None:
        """Asks no more."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # a thread may be reading
        self._socket.close()


def show(as_json: bool) -> int:
    """Shows the jobs; returns the exit code.

    Args:
        as_json: once, for programs.
    """
    on_terminal = not as_json and standard_streams.is_terminal(sys.stdout)
    with contextlib.closing(_Watch()) as watch, _keys(on_terminal) as pressed:
        try:
            watch.look()
            while True:
                ended = pressed(_EVERY_S)
                watch.look()
                if on_terminal and not ended:
                    standard_streams.write(sys.stdout, _CLEAR + _page(watch, shutil.get_terminal_size().columns))
                    continue
                if as_json:
                    jobs = [as_data(each.job, each.rows()) for each in watch.answered()]
                    made = {"jobs": jobs, "unanswered": watch.silent()}
                    standard_streams.write(sys.stdout, json.dumps(made, indent=2) + "\n")
                elif not on_terminal:
                    standard_streams.write(sys.stdout, _page(watch))
                return 0
        except KeyboardInterrupt:
            return 128 + signal.SIGINT if not on_terminal else 0


class _Watch:
    """All jobs of this user."""

    def __init__(self) -> None:
        self.launchers: dict[str, _Launcher] = {}

    def look(self) -> None:
        """Asks all of them once, at the same time."""
        for place in (*map(str, runtime_directory.listening()), *_abstract()):
            if place not in self.launchers:
                self._call(place)
        for launcher in self.launchers.values():
            launcher.ask()
        deadline_s = time.monotonic() + _ANSWER_S
        for place, launcher in list(self.launchers.items()):
            launcher.await_answer(deadline_s - time.monotonic())
            if launcher.has_gone:
                launcher.close()
                del self.launchers[place]
                self._call(place)  # one that is stopped closes a connection, and takes the next one

    def _call(self, place: str) -> None:
        with contextlib.suppress(OSError):  # it has just ended, or has been killed
            self.launchers[place] = _Launcher(place)

    def answered(self) -> list[_Launcher]:
        """Those with an answer to the last question."""
        return [each for each in self.launchers.values() if each.job and not each.is_silent]

    def silent(self) -> list[int]:
        """The processes of the others."""
        return sorted(each.pid for each in self.launchers.values() if not each.job or each.is_silent)

    def close(self) -> None:
        """Asks no more."""
        for launcher in self.launchers.values():
            launcher.close()


def _page(watch: _Watch, width: int = 200) -> str:
    jobs = [screen(each.job, each.rows(), width) for each in watch.answered()]
    jobs += [[f"job {pid}: its launcher does not answer"] for pid in watch.silent()]
    if not jobs:
        return "No job of this user is running on this machine.\n"
    return "\n\n".join("\n".join(lines) for lines in jobs) + "\n"


def _abstract() -> list[str]:
    """The names of sockets of the abstract namespace that may be those of this user's launchers."""
    try:
        lines = Path("/proc/net/unix").read_text("ascii", "replace").splitlines()
    except OSError:
        return []
    begin = f"@{abstract_names()}"
    return sorted({name for line in lines for name in line.split()[7:] if name.startswith(begin)})


def _connected(place: str) -> tuple[socket.socket, int]:
    """A connection, and the process that listens there."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(_ANSWER_S)
        if place.startswith("@"):
            connection.connect("\0" + place[1:])
        else:
            folder, name = os.path.split(place)
            # By the directory's descriptor: a path may be longer than an address of a socket can be.
            directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                connection.connect(f"/proc/self/fd/{directory}/{name}")
            finally:
                os.close(directory)
        pid, uid = peer_credentials(connection)
        if uid != os.geteuid():
            raise PermissionError("another user listens there")
    except BaseException:
        connection.close()
        raise
    connection.settimeout(None)  # who reads has a thread of its own
    return connection, pid


@contextlib.contextmanager
def _keys(on_terminal: bool) -> Iterator[Any]:
    """For its time, keys arrive as they are pressed.

    Yields:
        A function that waits so long, and says whether q was pressed.
    """

    def nothing(seconds: float) -> bool:
        time.sleep(seconds)
        return False

    fd = _terminal() if on_terminal else None
    if fd is None:
        yield nothing
        return
    import termios
    import tty

    def pressed(seconds: float) -> bool:
        ready, _, _ = select.select([fd], [], [], seconds)
        return bool(ready) and os.read(fd, 64) in (b"q", b"Q", b"")

    modes = termios.tcgetattr(fd)
    tty.setcbreak(fd)
    try:
        yield pressed
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, modes)


def _terminal() -> Optional[int]:
    """The descriptor of standard input, where it is a terminal."""
    return 0 if os.isatty(0) else None
