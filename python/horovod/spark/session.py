"""What `run` needs of Spark: a classic session, its slots, and a job of one stage in it.

The only file that asks pyspark anything on the driver.
"""

from __future__ import annotations

import contextlib
import importlib
import re
import secrets
import time
from collections.abc import Mapping
from typing import Any, Final, Optional, Protocol

from horovod._core.errors import UnsupportedError
from horovod._core.frameworks import require
from horovod.spark.slots import Numbers, SlotWatch, allocates_dynamically, refuse_dynamic_allocation
from horovod.spark.tasks import Task

_LOOK_S: Final = 0.25
_CANCEL_S: Final = 30.0
_MODULE_IS_MISSING: Final = re.compile(r"No module named '(horovod[\w.]*)'")
_EXECUTOR_LOST: Final = re.compile(r"(ExecutorLostFailure \(.*)$", re.MULTILINE)
_OF_JAVA: Final = re.compile(r"^:?\s*[\w.$]+(?:Exception|Error): (.*)$", re.MULTILINE)
_TRACEBACK: Final = "Traceback (most recent call last):\n"


class SparkJob(Protocol):
    """A job of Spark that runs a task for each rank."""

    def ended(self, patience_s: float = 0.0) -> bool:
        """It has ended, or has within this time."""

    def why(self) -> str:
        """How it has failed, in words; empty if it has not."""

    def cancel(self) -> None:
        """Has Spark end it. May be called at any time."""


class Session(Protocol):
    """A session of Spark.

    Attributes:
        conf: of its application.
        default_tasks: `spark.default.parallelism`, or what stands for it.
    """

    conf: Mapping[str, str]
    default_tasks: int

    def await_slots(self, caller: str, numbers: Numbers, patience_s: float) -> None:
        """Waits until the tasks to begin with can run at once; raises as `SlotWatch` does. An elastic job's own tasks
        make dynamic allocation start executors, so there it does not wait."""

    def executors(self) -> list[str]:
        """The hosts of the executors that run, as far as they are known."""

    def start(self, numbers: Numbers, task: Task, description: str) -> SparkJob:
        """Begins to run as many of them as there can be: all at once, or those of an elastic job one by one."""


def active(caller: str) -> Session:
    """The session of this process.

    Args:
        caller: for messages.

    Raises:
        ModuleNotFoundError: pyspark is not installed.
        RuntimeError: there is no session.
        UnsupportedError: it is one of Spark Connect.
    """
    pyspark = require("pyspark", "Spark for Python", caller)
    if importlib.import_module("pyspark.sql.utils").is_remote():  # there may be a context, too: a server's, in tests
        raise UnsupportedError(
            f"{caller}: the active session is one of Spark Connect, whose jobs cannot be started by this version. "
            "Remedy: run the program where the session is a classic one (spark-submit, or "
            "SparkSession.builder.master(...) instead of .remote(...))."
        )
    context = pyspark.SparkContext._active_spark_context
    if context is not None:
        return ClassicSession(context)
    raise RuntimeError(
        f"{caller}: there is no active SparkContext in this process. Make a session first: "
        "SparkSession.builder.getOrCreate()."
    )


class ClassicSession:
    """A `Session` whose driver is this process."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self.conf: Mapping[str, str] = dict(context.getConf().getAll())
        self.default_tasks = int(context.defaultParallelism)

    def await_slots(self, caller: str, numbers: Numbers, patience_s: float) -> None:
        """See `Session`."""
        if not numbers.elastic:
            refuse_dynamic_allocation(caller, self._context.master, self.conf)
        elif allocates_dynamically(self.conf):
            return
        watch = SlotWatch(caller, numbers.first, self._context.master, self.conf, time.monotonic(), patience_s)
        while not watch.enough(self._slots(), time.monotonic()):
            time.sleep(_LOOK_S)

    def _slots(self) -> int:
        scala = self._context._jsc.sc()
        return int(scala.maxNumConcurrentTasks(scala.resourceProfileManager().defaultResourceProfile()))

    def executors(self) -> list[str]:
        """See `Session`."""
        return [str(each.host()) for each in self._context._jsc.sc().statusTracker().getExecutorInfos()]

    def start(self, numbers: Numbers, task: Task, description: str) -> SparkJob:
        """See `Session`."""
        return ClassicJob(self._context, numbers, task, description)


class ClassicJob:
    """A `SparkJob` of a classic session.

    A tag of its own is what it is cancelled by. A group that the caller's thread has set stays: who cancels that group
    means this job, too. Where there is none, it gets one of its own.
    """

    def __init__(self, context: Any, numbers: Numbers, task: Task, description: str) -> None:
        from pyspark import InheritableThread

        self._context = context
        self._numbers = numbers
        self._task = task
        self._name = f"horovod-{secrets.token_hex(6)}"
        self._description = description
        self._why: Optional[str] = None
        self._cancelled = False
        # Spark keeps properties of jobs by thread, and collect() does not return before the job has ended.
        self._thread = InheritableThread(target=self._run, name=self._name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        context = self._context
        if not context.getLocalProperty("spark.jobGroup.id"):
            context.setJobGroup(self._name, self._description, interruptOnCancel=True)
        context.addJobTag(self._name)
        try:
            tasks = context.range(self._numbers.most, numSlices=self._numbers.most)
            stage = tasks if self._numbers.elastic else tasks.barrier()
            stage.mapPartitions(self._task.of_partition).collect()
        except Exception as error:  # whatever py4j makes of what goes wrong in Java
            self._why = reason_in(str(error))

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
        while self._thread.is_alive() and time.monotonic() < deadline_s:
            with contextlib.suppress(Exception):  # whatever py4j says of a driver in Java that is gone
                self._context.cancelJobsWithTag(self._name)
            self._thread.join(_LOOK_S)


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
