"""A job of Spark in a thread of the driver, and how it failed. Used by the sessions."""

from __future__ import annotations

import contextlib
import re
import secrets
import threading
import time
from typing import Any, Final, Optional, Protocol

_LOOK_S: Final = 0.25
_CANCEL_S: Final = 30.0
_MODULE_IS_MISSING: Final = re.compile(r"No module named '(horovod[\w.]*)'")
_EXECUTOR_LOST: Final = re.compile(r"(ExecutorLostFailure \(.*)$", re.MULTILINE)
_OF_JAVA: Final = re.compile(r"^:?\s*[\w.$]+(?:Exception|Error): (.*)$", re.MULTILINE)
_TRACEBACK: Final = "Traceback (most recent call last):\n"


class SparkJob(Protocol):
    """A job of Spark: the ranks' tasks, or a query."""

    def ended(self, patience_s: float = 0.0) -> bool:
        """It has ended, or has within this time."""

    def why(self) -> str:
        """How it has failed, in words; empty if it has not."""

    def cancel(self) -> None:
        """Has Spark end it. May be called at any time."""


class ThreadedJob:
    """A `SparkJob` of a session, whose call does not return before the job has ended.

    A tag of its own is what it is cancelled by.
    """

    def __init__(self) -> None:
        self._name = f"horovod-{secrets.token_hex(6)}"
        self._why: Optional[str] = None
        self._cancelled = False
        self._thread = self._made()
        self._thread.start()

    def _made(self) -> threading.Thread:
        """A thread that calls `_run`."""
        return threading.Thread(target=self._run, name=self._name, daemon=True)

    def _run(self) -> None:
        try:
            self._work()
        except Exception as error:  # whatever pyspark makes of what goes wrong in Java
            self._why = reason_in(str(error))

    def _work(self) -> None:
        """Runs the tasks to their end."""
        raise NotImplementedError

    def _interrupt(self) -> Any:
        """Has Spark end what has the tag."""
        raise NotImplementedError

    def ended(self, patience_s: float = 0.0) -> bool:
        """See `SparkJob`."""
        self._thread.join(patience_s)
        return not self._thread.is_alive()

    def why(self) -> str:
        """See `SparkJob`."""
        return "" if self._why is None or self._cancelled else self._why

    def cancel(self) -> None:
        """See `SparkJob`. Again and again, as Spark may not know the job yet."""
        self._cancelled = True
        deadline_s = time.monotonic() + _CANCEL_S
        asking: Optional[threading.Thread] = None
        while self._thread.is_alive() and time.monotonic() < deadline_s:
            if asking is None or not asking.is_alive():  # a server that is gone keeps the call for minutes
                asking = threading.Thread(target=self._ask_to_end, name=self._name, daemon=True)
                asking.start()
            self._thread.join(_LOOK_S)

    def _ask_to_end(self) -> None:
        with contextlib.suppress(Exception):  # whatever pyspark says of a driver in Java that is gone
            self._interrupt()


def reason_in(text: str) -> str:
    """What went wrong in a job, from what py4j tells of it: a message, Java's stack, and inside it Python's."""
    if _TRACEBACK in text:
        lines = text.rpartition(_TRACEBACK)[2].splitlines()
        reason = next((line for line in lines if line and not line[0].isspace()), "")
    else:
        found = _EXECUTOR_LOST.search(text) or _OF_JAVA.search(text)
        reason = found.group(1) if found else text.partition("\n")[0]
    if missing := _MODULE_IS_MISSING.search(reason):
        return (
            f"{missing.group(1)} cannot be imported on the executors. Install this package, in this version, where "
            "they run, for the Python that PYSPARK_PYTHON names."
        )
    return reason.rstrip()
