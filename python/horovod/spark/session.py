"""What `run` needs of Spark: a session, its slots, and a job of one stage in it.

This file and `connect_session` are what asks pyspark anything on the driver.
"""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Mapping
from typing import Any, Final, Protocol

from horovod._core.frameworks import require
from horovod.spark import connect_session
from horovod.spark.slots import Numbers, SlotWatch, allocates_dynamically, refuse_dynamic_allocation
from horovod.spark.spark_job import SparkJob, ThreadedJob
from horovod.spark.tasks import Task

_LOOK_S: Final = 0.25


class Session(Protocol):
    """A session of Spark.

    Attributes:
        conf: of its application.
    """

    conf: Mapping[str, str]

    def default_tasks(self, caller: str, patience_s: float) -> int:
        """`spark.default.parallelism`, or what stands for it; raises RuntimeError where it is not known in time."""

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
        UnsupportedError: it is one of Spark Connect before Spark 4.
    """
    pyspark = require("pyspark", "Spark for Python", caller)
    if importlib.import_module("pyspark.sql.utils").is_remote():  # there may be a context, too: a server's, in tests
        return connect_session.active(caller)
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

    def default_tasks(self, caller: str, patience_s: float) -> int:
        """See `Session`."""
        del caller, patience_s
        return int(self._context.defaultParallelism)

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


class ClassicJob(ThreadedJob):
    """A job of a classic session.

    A group that the caller's thread has set stays: who cancels that group means this job, too. Where there is none, it
    gets one of its own.
    """

    def __init__(self, context: Any, numbers: Numbers, task: Task, description: str) -> None:
        self._context = context
        self._numbers = numbers
        self._task = task
        self._description = description
        super().__init__()

    def _made(self) -> threading.Thread:
        """See `ThreadedJob`. Spark keeps properties of jobs by thread."""
        from pyspark import InheritableThread

        made: threading.Thread = InheritableThread(target=self._run, name=self._name, daemon=True)
        return made

    def _work(self) -> None:
        context = self._context
        if not context.getLocalProperty("spark.jobGroup.id"):
            context.setJobGroup(self._name, self._description, interruptOnCancel=True)
        context.addJobTag(self._name)
        tasks = context.range(self._numbers.most, numSlices=self._numbers.most)
        stage = tasks if self._numbers.elastic else tasks.barrier()
        stage.mapPartitions(self._task.of_partition).collect()

    def _interrupt(self) -> None:
        self._context.cancelJobsWithTag(self._name)
