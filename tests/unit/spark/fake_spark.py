"""A Spark session made of threads: its tasks do what they do in executors, in this process."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from horovod._net.failures import ConnectError
from horovod.spark.tasks import Task

PATIENCE_S = 30.0


class FakeStage:
    """The context of one task of a barrier stage."""

    def __init__(self, partition: int, messages: list[str], together: threading.Barrier) -> None:
        self._partition = partition
        self._messages = messages
        self._together = together

    def partitionId(self) -> int:  # noqa: N802
        return self._partition

    def allGather(self, message: str) -> list[str]:  # noqa: N802
        self._messages[self._partition] = message
        self._together.wait(PATIENCE_S)
        return list(self._messages)


class FakeJob:
    """See the head of the file."""

    def __init__(self, tasks: int, task: Task, why: str) -> None:
        together, messages = threading.Barrier(tasks), [""] * tasks
        stages = [FakeStage(number, messages, together) for number in range(tasks)]
        self.cancelled = False
        self._why = why
        self._task = task
        self._threads = [threading.Thread(target=self._work, args=(stage,), daemon=True) for stage in stages]
        for thread in self._threads if not why else ():
            thread.start()

    def _work(self, stage: FakeStage) -> None:
        try:
            self._task.work(stage)
        except ConnectError as error:
            self._why = str(error)

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
        self.conf: Mapping[str, str] = {"spark.driver.host": "127.0.0.1"}
        self.default_tasks = 2
        self.jobs: list[FakeJob] = []
        self._why = why

    def await_slots(self, caller: str, wanted: int, patience_s: float) -> None:
        del caller, wanted, patience_s

    def start(self, tasks: int, task: Task, description: str) -> FakeJob:
        assert task.secret.hex() not in repr(task) and str(tasks) in description
        self.jobs.append(FakeJob(tasks, task, self._why))
        return self.jobs[-1]
