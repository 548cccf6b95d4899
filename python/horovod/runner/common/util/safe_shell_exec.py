"""Kept for import paths that other people use: runs a command of the shell and ends its processes with it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from typing import IO, Any, Final, Optional, Union

from horovod._core.absent import absent_names
from horovod.runner.util.threads import in_thread, on_event

GRACEFUL_TERMINATION_TIME_S: Final = 5
_LAST_LINES_S: Final = 1.0  # for what is in a pipe when all who are waited for have ended


def execute(
    command: Union[str, list[str]],
    env: Optional[Mapping[str, str]] = None,
    stdout: Optional[Any] = None,
    stderr: Optional[Any] = None,
    index: Optional[int] = None,
    events: Optional[Iterable[threading.Event]] = None,
    prefix_output_with_timestamp: bool = False,
) -> int:
    """Runs the command in a process group of its own and waits for it; what it has left running in that group is
    killed. A process that has begun a session or group of its own stays; what it still writes is passed on, but not
    waited for.

    Args:
        command: for the shell; a list is executed as it is.
        env: its environment; None = this process's.
        stdout, stderr: files for text that get its output; None = those of this process.
        index: when given, lines begin with `[index]<stdout>:` or `[index]<stderr>:`.
        events: each of them stops the command when it is set.
        prefix_output_with_timestamp: lines begin with the time, too.

    Returns:
        The exit code, or 128 + signal.
    """
    process = subprocess.Popen(
        command,
        shell=isinstance(command, str),
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    over = threading.Event()
    for event in events or ():
        on_event(event, _stop, args=(process,), stop=over)
    try:
        pumps = []
        for source, target, name in ((process.stdout, stdout, "stdout"), (process.stderr, stderr, "stderr")):
            prefix = "" if index is None else f"[{index}]<{name}>:"
            words = (source, target or getattr(sys, name), prefix, prefix_output_with_timestamp)
            pumps.append(in_thread(_pump, words))
        code = process.wait()
        _signal(process, signal.SIGKILL)  # what it has started and left behind
        for pump in pumps:
            pump.join(_LAST_LINES_S)
    finally:
        over.set()
        _signal(process, signal.SIGKILL)
    return 128 - code if code < 0 else code


def _pump(source: IO[bytes], target: Any, prefix: str, with_time: bool) -> None:
    with source:
        for line in source:
            moment = time.asctime() if with_time else ""
            target.write(moment + prefix + line.decode("utf-8", errors="replace"))
            target.flush()


def _stop(process: subprocess.Popen[bytes]) -> None:
    _signal(process, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GRACEFUL_TERMINATION_TIME_S)
    _signal(process, signal.SIGKILL)


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


__getattr__ = absent_names(
    __name__,
    {"terminate_executor_shell_and_children": "execute(), with an event in `events` that stops the command"},
)
