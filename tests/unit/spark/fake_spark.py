"""A Spark session made of threads: its tasks do what they do in executors, in this process."""

from __future__ import annotations

import itertools
import threading

from horovod._net.failures import ConnectError
from horovod.spark.slots import Numbers
from horovod.spark.tasks import Task

MOST_FAILURES = 4


class FakeContext:
    """Of one task."""

    def __init__(self, partition: int, attempt: int) -> None:
        self._partition = partition
        self._attempt = attempt

    def partitionId(self) -> int:  # noqa: N802
        return self._partition

    def taskAttemptId(self) -> int:  # noqa: N802
        return self._attempt


class FakeJob:
    """See the head of the file. A task that fails is started again, as by Spark; but not one that cannot connect."""

    def __init__(self, numbers: Numbers, task: Task, why: str) -> None:
        self.cancelled = False
        self.failures: list[str] = []
        self._why = why
        self._task = task
        self._attempts = itertools.count()
        self._threads = [
            threading.Thread(target=self._work, args=(number,), daemon=True) for number in range(numbers.most)
        ]
        for thread in self._threads if not why else ():
            thread.start()

    def _work(self, partition: int) -> None:
        for _ in range(MOST_FAILURES):
            try:
                self._task.work(FakeContext(partition, next(self._attempts)))
                return
            except ConnectError as error:
                self._why = str(error)
                return
            except RuntimeError as error:
                self.failures.append(str(error))

    def ended(self, patience_s: float = 0.0) -> bool:
        if not self._why:
            for thread in self._threads:
                thread.join(patience_s)
        return bool(self._why) or not any(thread.is_alive() for thread in self._threads)

    def why(self) -> str:
        return self._why

    def cancel(self) -> None:
        self.cancelled = True


class FakeSession:
    """See the head of the file.

    Args:
        why: how the next job fails before a task starts; empty: it does not.
    """

    def __init__(self, why: str = "") -> None:
        self.conf: dict[str, str] = {"spark.driver.host": "127.0.0.1"}
        self.jobs: list[FakeJob] = []
        self.hosts = ["localhost"]
        self._why = why

    def default_tasks(self, caller: str, patience_s: float) -> int:
        del caller, patience_s
        return 2

    def await_slots(self, caller: str, numbers: Numbers, patience_s: float) -> None:
        del caller, numbers, patience_s

    def executors(self) -> list[str]:
        return self.hosts

    def start(self, numbers: Numbers, task: Task, description: str) -> FakeJob:
        assert task.secret.hex() not in repr(task) and str(numbers.first) in description
        self.jobs.append(FakeJob(numbers, task, self._why))
        return self.jobs[-1]
