"""Sessions of Spark Connect: what a client finds out of its application, and how its job is tagged and ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, Optional

import pytest

from horovod._core.errors import InvalidArgumentError
from horovod.runner.machines import addresses
from horovod.spark import connect_session
from horovod.spark.connect_session import ConnectSession
from horovod.spark.slots import Numbers
from horovod.spark.tasks import Task

TASK = Task(bytes(32), "job", ("127.0.0.1", 1), 1.0, 5.0)


class Settings:
    """Of an application."""

    def __init__(self, values: dict[str, str]) -> None:
        self._values = values

    @property
    def getAll(self) -> dict[str, str]:  # noqa: N802
        return self._values


class Remote:
    """A session whose application has `slots`, of which none is free if it is 0; to count them takes `seconds`. Its
    jobs last until a tag of theirs is interrupted."""

    def __init__(self, slots: int, host: str = "localhost", seconds: float = 0.0, **conf: str) -> None:
        self.conf = Settings({name.replace("_", "."): value for name, value in conf.items()})
        self.client = SimpleNamespace(host=host)
        self.queries: list[str] = []
        self.stages: list[tuple[Any, ...]] = []
        self._slots = slots
        self._seconds = seconds
        self._of_thread = threading.local()
        self._interrupted = threading.Condition()
        self._gone: set[str] = set()

    def getTags(self) -> set[str]:  # noqa: N802
        return set(getattr(self._of_thread, "tags", ()))

    def addTag(self, tag: str) -> None:  # noqa: N802
        self._of_thread.tags = {*self.getTags(), tag}

    def interruptTag(self, tag: str) -> list[str]:  # noqa: N802
        with self._interrupted:
            self._gone.add(tag)
            self._interrupted.notify_all()
        return []

    def range(self, *bounds: int) -> Any:
        def in_arrow(function: Callable[..., Iterator[Any]], schema: str, barrier: bool) -> Any:
            return SimpleNamespace(collect=lambda: self._run(function, schema, barrier, bounds))

        def select(query: str) -> Any:
            self.queries.append(query)
            return SimpleNamespace(selectExpr=select, collect=self._counted)

        return SimpleNamespace(mapInArrow=in_arrow, selectExpr=select)

    def _counted(self) -> list[tuple[int]]:
        if not self._slots:
            self._until_interrupted()
        time.sleep(self._seconds)
        return [(self._slots - 1,)]

    def _run(self, *stage: Any) -> None:
        self.stages.append(stage)
        self._until_interrupted()

    def _until_interrupted(self) -> None:
        with self._interrupted:
            self._interrupted.wait_for(lambda: bool(self._gone & self.getTags()), 20)
        raise RuntimeError("[OPERATION_CANCELED] Operation has been canceled.")


def numbers(ranks: int, most: Optional[int] = None) -> Numbers:
    return Numbers(ranks, most or ranks, ranks, elastic=most is not None)


def test_slots_are_counted_by_a_query() -> None:
    remote = Remote(2, spark_master="local[2]")
    session = ConnectSession(remote)
    assert session.default_tasks("run", 60) == 2 and session.executors() == []
    session.await_slots("run", numbers(2), 60)
    with pytest.raises(InvalidArgumentError, match="run: 3 processes need 3 task slots .* has 2 .*Lower num_proc to 2"):
        session.await_slots("run", numbers(3), 60)
    with pytest.raises(InvalidArgumentError, match="has 1 "):
        ConnectSession(Remote(2, spark_master="local[2]", spark_task_cpus="2")).await_slots("run", numbers(2), 60)
    assert remote.queries == ["spark_partition_id() AS number", "max(number)"] * 3


def test_the_last_query_has_time_enough_for_an_error_with_the_numbers() -> None:
    remote = Remote(1, spark_master="spark://a", spark_cores_max="8", seconds=0.4)
    with pytest.raises(InvalidArgumentError, match=r"4 processes need 4 .* has 1 .*and can have 8"):
        ConnectSession(remote).await_slots("run", numbers(4), 0.6)


def test_a_query_that_waits_for_other_jobs_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect_session, "_LEAST_S", 0.2)
    remote = Remote(0, spark_master="local[2]")
    session, start_s = ConnectSession(remote), time.monotonic()
    with pytest.raises(RuntimeError, match=r"run: the query .* task slots has not ended in 0 s\. Other jobs may hold"):
        session.await_slots("run", numbers(2), 0.2)
    assert time.monotonic() - start_s < 5 and len(remote.queries) == 2 and remote.getTags() == set()
    remote.addTag("mine")
    threading.Timer(0.3, remote.interruptTag, ["mine"]).start()
    with pytest.raises(RuntimeError, match=r"run: Spark has ended the query that counts .*OPERATION_CANCELED"):
        session.default_tasks("run", 60)


def test_a_default_that_says_nothing_of_slots_is_not_believed() -> None:
    conf = {"spark_default_parallelism": "8", "spark_cores_max": "4"}
    ConnectSession(Remote(8, spark_master="spark://a", **conf)).await_slots("run", numbers(4), 60)
    with pytest.raises(InvalidArgumentError, match="this Spark application has 4 "):
        ConnectSession(Remote(8, spark_master="spark://a", **conf)).await_slots("run", numbers(5), 60)
    unknown = Remote(8, spark_master="yarn", spark_default_parallelism="8")
    ConnectSession(unknown).await_slots("run", numbers(50), 60)
    assert unknown.queries == []


def test_dynamic_allocation_is_for_elastic_jobs() -> None:
    session = ConnectSession(Remote(1, spark_master="yarn", spark_dynamicAllocation_enabled="true"))
    with pytest.raises(InvalidArgumentError, match=r"call horovod\.spark\.run_elastic"):
        session.await_slots("run", numbers(1), 60)
    session.await_slots("run_elastic", numbers(4, most=8), 60)


def test_the_tasks_call_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    conf = {"spark_driver_host": "10.9.9.9", "spark_driver_bindAddress": "0.0.0.0"}
    assert ConnectSession(Remote(1, "127.0.0.1", **conf)).conf["spark.driver.host"] == "10.9.9.9"
    monkeypatch.setattr(addresses, "towards", lambda server: f"here on the way to {server}")
    found = ConnectSession(Remote(1, "192.0.2.77", **conf)).conf
    assert found["spark.driver.host"] == "here on the way to 192.0.2.77" and not found["spark.driver.bindAddress"]


def test_a_job_has_a_tag_of_its_own_and_those_of_its_thread() -> None:
    for by_user in (True, False):
        remote = Remote(2)
        remote.addTag("mine")
        job = ConnectSession(remote).start(numbers(2), TASK, "")
        assert not job.ended(0.1) and job.why() == ""
        if by_user:
            remote.interruptTag("mine")
            assert job.ended(20) and job.why() == "[OPERATION_CANCELED] Operation has been canceled."
        else:
            job.cancel()
            assert job.ended() and job.why() == ""
        assert remote.stages == [(TASK.of_partition, "nothing long", True, (0, 2, 1, 2))]
        assert remote.getTags() == {"mine"}


def test_tasks_of_an_elastic_job_are_no_barrier_stage() -> None:
    remote = Remote(2)
    job = ConnectSession(remote).start(numbers(2, most=3), TASK, "")
    job.cancel()
    assert remote.stages == [(TASK.of_partition, "nothing long", False, (0, 3, 1, 3))]
