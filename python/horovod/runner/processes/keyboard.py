"""The terminal that a rank reads in the launcher's place (`--stdin-rank`).

The rank is in another session than the launcher, so the kernel counts it among none of the terminal's jobs: it would
read on what is typed for the shell while the launcher is stopped or in the background, and where it has switched the
echo off (a password, a debugger), that would stay so when it is killed. What the kernel and shells do for other
programs is done here. Used by `launchers.local` and `process`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import termios
import time
from collections.abc import Iterator

_STOPPED_S = 0.05  # a process that comes back sooner was not stopped
_ENDING = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


@contextlib.contextmanager
def lent(fd: int) -> Iterator[None]:
    """For its time a rank may read this terminal; afterwards that is as it was. Nothing where it is not a terminal."""
    come_to_front(fd)
    try:
        modes = termios.tcgetattr(fd)
    except termios.error:
        yield
        return
    try:
        yield
    finally:
        # From the background that would stop this process; and the shell has its own modes there then.
        if not _in_background(fd):
            with contextlib.suppress(termios.error):  # it has been hung up
                termios.tcsetattr(fd, termios.TCSANOW, modes)


def come_to_front(fd: int) -> None:
    """Stops this process group while it is in the background of the terminal, as the kernel does with one that reads
    there: `fg` lets it go on, and so does a signal that ends the job."""
    others = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        while _in_background(fd) and not signal.sigpending() & _ENDING:
            asked_s = time.monotonic()
            os.killpg(0, signal.SIGTTIN)
            if time.monotonic() - asked_s < _STOPPED_S:
                return  # no shell watches over it, which could let it go on
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, others)


def _in_background(fd: int) -> bool:
    try:
        return os.tcgetpgrp(fd) != os.getpgrp()
    except OSError:
        return False  # no terminal, or not the one of this session
