"""Runs a host discovery script again and again: at most one at a time, each with a deadline.

Used by `driver`, whose loop wakes it. What its output means is in `discovery`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import shlex
import signal
import subprocess
import time
from typing import Callable, Final, Optional

from horovod._core.errors import InvalidArgumentError
from horovod.runner.elastic.discovery import parse
from horovod.runner.hosts import Host

_PERIOD_S: Final = 1.0
_ENDING_S: Final = 0.5
_MOST_BYTES: Final = 4 << 20
_PR_SET_PDEATHSIG: Final = 1
_CHUNK_BYTES: Final = 1 << 16
_LAST_LINE: Final = 200


class Script:
    """See the head of the file.

    Args:
        command: path of the executable, with arguments if it needs some.
        default_slots: of hosts that it prints without a number.
        cwd: where it runs.
        environ: of the launcher.
        deadline_s: for each run.

    Attributes:
        problem: why the last run has told nothing; empty after one that has.
    """

    def __init__(
        self, command: str, default_slots: Optional[int], cwd: str, environ: dict[str, str], deadline_s: float = 20.0
    ) -> None:
        self._words = [command] if os.path.exists(os.path.join(cwd, command)) else shlex.split(command)
        if os.sep in self._words[0]:
            self._words[0] = os.path.join(cwd, self._words[0])
        self._default_slots = default_slots
        self._cwd = cwd
        self._environ = environ
        self._deadline_s = deadline_s
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._printed = bytearray()
        self._next_s = time.monotonic()
        self._poller: Optional[select.epoll] = None
        self.problem = ""

    def wake(self, poller: select.epoll) -> None:
        """From here on its output wakes this poller."""
        self._poller = poller
        if self.fd >= 0:
            poller.register(self.fd, select.EPOLLIN)

    @property
    def fd(self) -> int:
        """Readable when `serve` has something to do; -1: nothing runs."""
        return -1 if self._process is None or self._process.stdout is None else self._process.stdout.fileno()

    def next_s(self) -> float:
        """When to call `serve` in any case."""
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
            self._failed(f"has not ended within {self._deadline_s:g} s, and was killed")
            return None
        return self._finished()

    def close(self) -> None:
        """Ends a run that is under way."""
        if self._process is not None:
            self._kill()
            self._forget()

    def _start(self) -> None:
        try:
            # A group of its own, so that what it starts can be ended with it; and it ends with the launcher.
            self._process = subprocess.Popen(
                self._words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd=self._cwd,
                env=self._environ,
                start_new_session=True,
                preexec_fn=_die_with_parent(os.getpid()),
            )
        except OSError as error:
            self._failed(f"cannot be executed: {error.strerror}")
            return
        self._printed.clear()
        self._next_s = time.monotonic() + self._deadline_s
        os.set_blocking(self.fd, False)
        if self._poller is not None:
            self._poller.register(self.fd, select.EPOLLIN)

    def _read(self) -> bool:
        """Takes what has come; says whether that is all."""
        while len(self._printed) <= _MOST_BYTES:
            try:
                data = os.read(self.fd, _CHUNK_BYTES)
            except BlockingIOError:
                return False
            if not data:
                return True
            self._printed += data
        return True

    def _finished(self) -> Optional[tuple[Host, ...]]:
        if self._process is None or self._process.stdout is None:
            return None
        if len(self._printed) > _MOST_BYTES:
            self._kill()
            self._failed(f"prints more than {_MOST_BYTES >> 20} MiB")
            return None
        try:
            code = self._process.wait(_ENDING_S)  # its output has ended, so it has, or it will in a moment
        except subprocess.TimeoutExpired:
            self._kill()
            self._failed("has closed its output and not ended, and was killed")
            return None
        text = self._printed.decode("utf-8", "replace")
        if code:
            last = (text.strip().splitlines() or ["it printed nothing"])[-1][:_LAST_LINE]
            self._failed(f"failed with code {code}: {last}")
            return None
        try:
            hosts = parse(text, self._words[0], self._default_slots)
        except InvalidArgumentError as error:
            self._failed(f"prints what is no list of hosts: {error}")
            return None
        self.problem = ""
        self._forget()
        return hosts

    def _failed(self, how: str) -> None:
        self.problem = f"the host discovery script {self._words[0]} {how.rstrip('.')}"
        self._forget()

    def _kill(self) -> None:
        if self._process is not None:
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _forget(self) -> None:
        if self._process is not None and self._process.stdout is not None:
            if self._poller is not None:
                with contextlib.suppress(OSError):
                    self._poller.unregister(self.fd)
            self._process.stdout.close()
        self._process = None
        self._next_s = time.monotonic() + _PERIOD_S


def _die_with_parent(parent: int) -> Callable[[], None]:
    libc = ctypes.CDLL(None, use_errno=True)

    def prepare() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return prepare
