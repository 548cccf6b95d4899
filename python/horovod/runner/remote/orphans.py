"""What is left when a keeper itself is killed: whatever its ranks have started becomes the agent's, which ends it.

Used by `agent`, which has no other children.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from typing import Final

_PR_SET_CHILD_SUBREAPER: Final = 36
_PATIENCE_S: Final = 2.0
_RETRY_S: Final = 0.005


def adopt() -> None:
    """From here on orphans among this process's descendants become its children."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def kill_all() -> None:
    """Kills children until there are none; the children of those that die come next."""
    deadline_s = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline_s:
        for pid in _children(os.getpid()):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(_RETRY_S)


def _children(parent: int) -> list[int]:
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError, IndexError, ValueError), open(f"/proc/{name}/stat", "rb") as file:
            if int(file.read().rpartition(b")")[2].split()[1]) == parent:
                found.append(int(name))
    return found
