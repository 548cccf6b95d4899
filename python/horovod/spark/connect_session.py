"""A session of Spark Connect: this process is a client, and the application's driver is a server elsewhere.

What a classic driver knows of its application, a client asks the server for: settings, and by a query how many tasks
run at once. The tasks call the client, by the address that it has on its way to the server. Needs Spark 4.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from horovod._core.errors import UnsupportedError
from horovod.runner.machines import addresses
from horovod.spark.slots import Numbers, SlotWatch, allocates_dynamically, declared, refuse_dynamic_allocation
from horovod.spark.spark_job import ThreadedJob
from horovod.spark.tasks import Task

_LOOK_S: Final = 1.0
_LEAST_S: Final = 5.0  # of a query that counts, at the end of the user's time too: then the error has the numbers
_MOST_TASKS: Final = 1 << 20
# Where one of these is set, the server's default says nothing of the executors.
_DEFAULTS: Final = ("spark.default.parallelism", "spark.sql.leafNodeDefaultParallelism")


def active(caller: str) -> ConnectSession:
    """The session of this process, which is one of Spark Connect.

    Args:
        caller: for messages.

    Raises:
        RuntimeError: there is none.
        UnsupportedError: its version is older than 4.
    """
    from pyspark.sql import SparkSession

    try:
        session = SparkSession.active()
    except Exception as error:
        raise RuntimeError(
            f"{caller}: there is no active session in this process. Make one first: SparkSession.builder.getOrCreate()."
        ) from error
    if not hasattr(type(session.conf), "getAll"):
        raise UnsupportedError(
            f"{caller}: the active session is one of Spark Connect before Spark 4, whose settings cannot be read. "
            "Remedy: use Spark 4, or run the program where the session is a classic one (spark-submit, or "
            "SparkSession.builder.master(...) instead of .remote(...))."
        )
    return ConnectSession(session)


class ConnectSession:
    """A `session.Session` of Spark Connect."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self.conf: Mapping[str, str] = _seen_from_here(session.conf.getAll, str(session.client.host))
        self._master = self.conf.get("spark.master", "")

    def default_tasks(self, caller: str, patience_s: float) -> int:
        """See `session.Session`.

        Raises:
            RuntimeError: the query that counts them has failed, or has not ended in time.
        """
        query = TaskCount(self._session)
        try:
            if query.ended(patience_s):
                if query.found:
                    return query.found
                raise RuntimeError(f"{caller}: Spark has ended the query that counts the task slots: {query.why()}")
        finally:
            query.cancel()
        raise RuntimeError(
            f"{caller}: the query that counts the application's task slots has not ended in {patience_s:.0f} s. Other "
            "jobs may hold all slots. End them, or give more time (start_timeout)."
        )

    def await_slots(self, caller: str, numbers: Numbers, patience_s: float) -> None:
        """See `session.Session`."""
        if not numbers.elastic:
            refuse_dynamic_allocation(caller, self._master, self.conf)
        elif allocates_dynamically(self.conf):
            return
        start_s = time.monotonic()
        watch = SlotWatch(caller, numbers.first, self._master, self.conf, start_s, patience_s)
        while not watch.enough(self._slots(caller, numbers.first, start_s + patience_s), time.monotonic()):
            time.sleep(_LOOK_S)

    def _slots(self, caller: str, wanted: int, until_s: float) -> int:
        """How many there are; as many as are wanted, where nothing says it: then Spark waits for them."""
        if any(name in self.conf for name in _DEFAULTS):
            most = declared(self._master, self.conf)
            return wanted if most is None else most
        tasks = self.default_tasks(caller, max(_LEAST_S, until_s - time.monotonic()))
        return tasks // max(1, int(self.conf.get("spark.task.cpus", 1)))

    def executors(self) -> list[str]:
        """See `session.Session`. A client does not know them."""
        return []

    def start(self, numbers: Numbers, task: Task, description: str) -> ConnectJob:
        """See `session.Session`."""
        del description
        return ConnectJob(self._session, numbers, task)


class _TaggedJob(ThreadedJob):
    """A job of Spark Connect. It has the tags of the caller's thread, too: who interrupts those means this job."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._tags = list(session.getTags())
        super().__init__()

    def _work(self) -> None:
        for tag in (self._name, *self._tags):
            self._session.addTag(tag)  # of this thread
        self._query()

    def _query(self) -> None:
        """Runs it to its end."""
        raise NotImplementedError

    def _interrupt(self) -> None:
        self._session.interruptTag(self._name)


class TaskCount(_TaggedJob):
    """A query that says into how many tasks Spark divides a range. It waits for a free slot.

    Attributes:
        found: their number; 0 while it is unknown.
    """

    found = 0

    def _query(self) -> None:
        rows = self._session.range(_MOST_TASKS)
        counted = rows.selectExpr("spark_partition_id() AS number").selectExpr("max(number)").collect()
        self.found = int(counted[0][0]) + 1


class ConnectJob(_TaggedJob):
    """The ranks' tasks."""

    def __init__(self, session: Any, numbers: Numbers, task: Task) -> None:
        self._numbers = numbers
        self._task = task
        super().__init__(session)

    def _query(self) -> None:
        tasks = self._session.range(0, self._numbers.most, 1, self._numbers.most)
        is_whole = not self._numbers.elastic
        tasks.mapInArrow(self._task.of_partition, "nothing long", barrier=is_whole).collect()


def _seen_from_here(conf: Mapping[str, str], server: str) -> dict[str, str]:
    """The settings, in which the driver is this process: executors reach it as the server does."""
    at = addresses.of_name(server)
    if not at or addresses.is_own(at):
        return dict(conf)
    mine = {"spark.driver.host": addresses.towards(at), "spark.driver.bindAddress": ""}
    return {**conf, **mine}
