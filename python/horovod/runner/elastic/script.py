"""Runs a host discovery script again and again: at most one at a time, each with a deadline.

What it prints means hosts (`discovery`); what it writes to stderr is for the user.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import shlex
import signal
import subprocess
import time
from typing import IO, Final, Optional

from horovod._core.errors import InvalidArgumentError
from horovod.runner.elastic.discovery import parse
from horovod.runner.elastic.host_source import HostSource
from horovod.runner.machines.hosts import Host
from horovod.runner.processes.command import SHELL, is_for_the_shell, resolve

_PERIOD_S: Final = 1.0
_ENDING_S: Final = 0.5
_MOST_BYTES: Final = 4 << 20
_MOST_WORDS: Final = 1 << 16  # bytes of a run's stderr; what follows is thrown away
_MOST_KNOWN: Final = 256  # lines of stderr that are not passed on again
_CHUNK_BYTES: Final = 1 << 16
_CHUNKS: Final = 2 * (_MOST_BYTES // _CHUNK_BYTES)
_LAST_LINE: Final = 200
_MOST_OF_A_PROBLEM: Final = 500  # characters: a line that is not a host may be long

# Runs "$@" and kills its whole process group when the launcher ends, by whatever signal: the launcher holds the other
# end of stdin and writes nothing, so `read` returns then.
_GUARDED: Final = """
exec 3<&0 </dev/null
"$@" 3<&- &
script=$!
exec >/dev/null 2>&1
(read -r nothing <&3; kill -9 -$$) &
guard=$!
wait $script
code=$?
kill -9 $guard
exit $code
"""


class Script(HostSource):
    """See the head of the file.

    Args:
        command: path of the executable, with arguments if it needs some; a text without a #! line is the shell's.
        default_slots: of hosts that it prints without a number.
        cwd: where it runs.
        environ: of the launcher.
        deadline_s: for each run.

    Attributes:
        fd: readable when `serve` has something to do.
    """

    def __init__(
        self, command: str, default_slots: Optional[int], cwd: str, environ: dict[str, str], deadline_s: float = 20.0
    ) -> None:
        self._words = [command] if os.path.exists(os.path.join(cwd, command)) else shlex.split(command)
        if os.sep in self._words[0]:
            self._words[0] = os.path.join(cwd, self._words[0])
        self._path = self._words[0]
        self.name = command
        self._default_slots = default_slots
        self._cwd = cwd
        self._environ = environ
        self._deadline_s = deadline_s
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._printed, self._stderr = bytearray(), bytearray()
        self._known: dict[str, None] = {}  # lines of stderr that were passed on
        self._written: list[str] = []  # lines of stderr to be passed on
        self._next_s = time.monotonic()
        self._poller = select.epoll()
        self.fd = self._poller.fileno()

    def wake(self, poller: select.epoll) -> None:
        poller.register(self.fd, select.EPOLLIN)

    def written(self) -> list[str]:
        """See `HostSource`: what it has written to stderr, under its name; a line that comes with every run, once."""
        written, self._written = self._written, []
        return written

    def next_s(self) -> float:
        return self._next_s

    def serve(self) -> Optional[tuple[Host, ...]]:
        """Starts it, reads what it prints, ends it if it hangs; the hosts, when it has printed all of them."""
        if self._process is None:
            if time.monotonic() >= self._next_s:
                self._start()
            return None
        ended = self._read()
        if not ended and time.monotonic() < self._next_s:
            return None
        if not ended:
            self._kill()
            self._failed("deadline", f"did not end within {self._deadline_s:g} s, and was killed")
            return None
        return self._finished()

    def close(self) -> None:
        """Ends a run that is under way. May be called twice."""
        if self._process is not None:
            self._kill()
            self._forget()
        self._poller.close()

    def _start(self) -> None:
        try:
            # A group of its own, so that what it starts can be ended with it.
            self._process = process = subprocess.Popen(
                [SHELL, "-c", _GUARDED, SHELL, *self._command()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=self._cwd,
                env=self._environ,
                start_new_session=True,
            )
        except OSError as error:
            self._failed("start", f"cannot be executed: {error.strerror}")
            return
        self._printed.clear()
        self._stderr.clear()
        self._next_s = time.monotonic() + self._deadline_s
        for pipe in _pipes(process):
            os.set_blocking(pipe.fileno(), False)
            self._poller.register(pipe.fileno(), select.EPOLLIN)

    def _command(self) -> list[str]:
        program = resolve(self._words[0], self._environ.get("PATH"), self._cwd)
        if program is None:
            why = errno.EACCES if os.path.exists(os.path.join(self._cwd, self._words[0])) else errno.ENOENT
            raise OSError(why, os.strerror(why))
        return [SHELL, program, *self._words[1:]] if is_for_the_shell(program) else [program, *self._words[1:]]

    def _read(self) -> bool:
        """Takes what has come; says whether that is all. Somebody else may hold stderr open for ever."""
        if self._process is None or self._process.stdout is None or self._process.stderr is None:
            return True
        if _take(self._process.stderr.fileno(), self._stderr, _MOST_WORDS):
            with contextlib.suppress(OSError):
                self._poller.unregister(self._process.stderr.fileno())
        return _take(self._process.stdout.fileno(), self._printed, _MOST_BYTES + 1) or len(self._printed) > _MOST_BYTES

    def _finished(self) -> Optional[tuple[Host, ...]]:
        if self._process is None or self._process.stdout is None:
            return None
        if len(self._printed) > _MOST_BYTES:
            self._kill()
            self._failed("size", f"prints more than {_MOST_BYTES >> 20} MiB")
            return None
        try:
            code = self._process.wait(_ENDING_S)  # its output has ended, so it has, or it will in a moment
        except subprocess.TimeoutExpired:
            self._kill()
            self._failed("end", "closed its output but did not exit, and was killed")
            return None
        text = self._printed.decode("utf-8", "replace")
        self._read()  # what it has written to stderr in its last moment
        if code:
            lines = self._lines_of_stderr() or text.strip().splitlines() or ["it printed nothing"]
            self._failed(f"code {code}", f"failed with code {code}: {lines[-1][:_LAST_LINE]}")
            return None
        try:
            hosts = parse(text, self._path, self._default_slots)
        except InvalidArgumentError as error:
            self._failed("hosts", f"does not print a list of hosts: {error}")
            return None
        self.problem = self.kind = ""
        self._forget()
        return hosts

    def _failed(self, kind: str, how: str) -> None:
        self.kind = kind
        self.problem = f"the host discovery script {self._path} {how[:_MOST_OF_A_PROBLEM].rstrip('.')}"
        self._forget()

    def _lines_of_stderr(self) -> list[str]:
        lines = self._stderr.decode("utf-8", "replace").splitlines()
        return [line.rstrip() for line in lines if line.strip()]

    def _kill(self) -> None:
        if self._process is not None:
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _forget(self) -> None:
        if self._process is not None:
            for pipe in _pipes(self._process):
                with contextlib.suppress(OSError):
                    self._poller.unregister(pipe.fileno())
                pipe.close()
            if self._process.stdin is not None:
                self._process.stdin.close()
            new = [line for line in dict.fromkeys(self._lines_of_stderr()) if line not in self._known]
            self._written += [f"{self._path}: {line}" for line in new]
            self._known = dict.fromkeys([*self._known, *new][-_MOST_KNOWN:])
        self._process = None
        self._next_s = time.monotonic() + _PERIOD_S


def _pipes(process: subprocess.Popen[bytes]) -> list[IO[bytes]]:
    """Its output and its stderr."""
    return [pipe for pipe in (process.stdout, process.stderr) if pipe is not None]


def _take(fd: int, received: bytearray, most: int) -> bool:
    """Reads what has come, of one that writes without end a part, and keeps so much; says whether that was the end."""
    for _ in range(_CHUNKS):
        try:
            data = os.read(fd, _CHUNK_BYTES)
        except BlockingIOError:
            return False
        if not data:
            return True
        received += data[: max(0, most - len(received))]
    return False
