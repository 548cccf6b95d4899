"""What is left when a keeper itself is killed: whatever its ranks have started becomes the launcher's or the agent's.

Used by `process`, which ends it; `cli` and `remote.agent` adopt. A process that is the user's own does not: it may have
children, and abandon some, that we must not end.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Container
from pathlib import Path
from typing import Final

from horovod.runner.processes import keeper

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_GRACE_S: Final = 0.4  # as the keeper gives; a cleaner that has just been forked is not yet known as one

_adopting: list[bool] = []  # not empty: this process does


def adopt() -> None:
    """From here on orphans among this process's descendants become its children."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0:
        _adopting.append(True)


def wake_at_parents_end() -> None:
    """Has the kernel let this process go on, if it was stopped, when its parent ends: so it sees that it is alone."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal.SIGCONT), 0, 0, 0)


def children() -> frozenset[int]:
    """Those that this process has now, where it adopts: what executes the launcher may have started some before."""
    if not _adopting:
        return frozenset()
    try:
        lists = [Path("/proc/self/task", task, "children").read_bytes() for task in os.listdir("/proc/self/task")]
    except OSError:  # not every kernel has these files, which save a look at every process of the machine
        return frozenset(_descendants(()))
    return frozenset(int(pid) for each in lists for pid in each.split())


def end_all(keeper_pid: int, others: Container[int], patience_s: float) -> None:
    """Ends what a dead keeper has left, in the keeper's own order.

    Args:
        keeper_pid: of the keeper, which has not been waited for. It leads the session that its ranks belong to, so its
            pid is the session's number.
        others: children of this process that were there before the keeper. They stay, and so do their children.
        patience_s: it may take so long. This process does nothing else meanwhile.
    """
    if _adopting:
        # One look may miss a process that gets a new parent at that moment.
        def find() -> list[int]:
            return _left(keeper_pid, others) or _left(keeper_pid, others)

    else:

        def find() -> list[int]:
            return _living_of_session(keeper_pid)

    grace_s = min(_GRACE_S, patience_s / 4)
    deadline_s = time.monotonic() + grace_s
    while find() and time.monotonic() < deadline_s:
        time.sleep(0.02)
    keeper.kill_in_order(find, patience_s - grace_s)


def _descendants(others: Container[int]) -> list[int]:
    return keeper.descendants(os.getpid(), others)


def _left(keeper_pid: int, others: Container[int]) -> list[int]:
    """The descendants, of which those that have ended are reaped."""
    return [pid for pid in _descendants(others) if pid != keeper_pid and not _reaped(pid)]


def _reaped(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return False  # not yet our child


def _living_of_session(session: int) -> list[int]:
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            state, _, _, number = Path("/proc", name, "stat").read_bytes().rpartition(b")")[2].split()[:4]
            if int(number) == session and state not in b"ZX":
                found.append(int(name))
    return found
