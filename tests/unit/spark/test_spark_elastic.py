"""`horovod.spark.run_elastic`: what it decides, and jobs over a session made of threads."""

from __future__ import annotations

import itertools
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from fake_spark import FakeSession

import horovod.spark
from horovod._core.errors import InvalidArgumentError
from horovod.runner.machines.hosts import Host
from horovod.spark import conf, session, tasks
from horovod.spark.executors import Executors, ExecutorSource
from horovod.spark.placement import Facts
from horovod.spark.slots import Asked, Numbers, elastic_numbers


def task(partition: int, executor: str, hostname: str = "node", *gpus: str) -> Facts:
    return Facts(partition, "m", executor, hostname, gpus)


def test_an_executor_is_a_host_and_its_tasks_are_slots() -> None:
    executors = Executors()
    assert executors.see({"0.0": task(0, "e1", "a", "4"), "1.1": task(1, "e2", "b")}) == (Host("a", 1), Host("b", 1))
    grown = {"0.0": task(0, "e1", "a", "4"), "1.1": task(1, "e2", "b"), "2.2": task(2, "e1", "a", "7")}
    assert executors.see(grown) == (Host("a", 2), Host("b", 1))
    assert executors.agent_of("a") == "0.0" and executors.gpus_of("a") == ["4", "7"] and executors.gpus_of("c") == []
    assert executors.see({"0.0": grown["0.0"], "1.1": grown["1.1"]}) == (Host("a", 1), Host("b", 1))
    assert executors.see({"0.0": grown["0.0"]}) == (Host("a", 1),)


def test_a_host_whose_agent_has_ended_is_over_and_its_name_too() -> None:
    executors = Executors()
    both = {"0.0": task(0, "e1"), "1.1": task(1, "e1")}
    assert executors.see(both) == (Host("node", 2),) and executors.agent_of("node") == "0.0"
    assert executors.see({"1.1": both["1.1"]}) == (Host("node-2", 1),)
    assert executors.agent_of("node") == "" and executors.agent_of("node-2") == "1.1"
    again = {"1.1": both["1.1"], "0.2": task(0, "e1"), "2.3": task(2, "e3")}
    assert executors.see(again) == (Host("node-2", 2), Host("node-3", 1))


def test_the_source_names_hosts_when_they_change(monkeypatch: pytest.MonkeyPatch) -> None:
    connected = {"0.0": task(0, "e1")}
    source = ExecutorSource(Executors(), lambda: connected)
    assert source.serve() == (Host("node", 1),)
    assert source.serve() is None and source.next_s() is not None
    source._next_s = 0.0
    assert source.serve() is None
    connected["1.1"] = task(1, "e1")
    source._next_s = 0.0
    assert source.serve() == (Host("node", 2),)


@pytest.mark.parametrize(
    "asked, settings, numbers",
    [
        (Asked(), {}, (2, 2, 2)),
        (Asked(3), {}, (3, 3, 3)),
        (Asked(3, 1, 5), {}, (3, 5, 1)),
        (Asked(None, 3), {}, (3, 3, 3)),
        (Asked(), {"minExecutors": "1", "maxExecutors": "4"}, (4, 8, 2)),
        (Asked(8), {"minExecutors": "1", "maxExecutors": "4"}, (8, 8, 2)),
        (Asked(1), {"minExecutors": "1", "maxExecutors": "4"}, (1, 8, 1)),
        (Asked(4, 3, 6), {"minExecutors": "1", "maxExecutors": "4"}, (4, 6, 3)),
        (Asked(), {}, (4, 4, 4)),
    ],
)
def test_numbers_that_follow_from_dynamic_allocation(
    asked: Asked, settings: dict[str, str], numbers: tuple[int, int, int]
) -> None:
    given = {f"spark.dynamicAllocation.{name}": value for name, value in settings.items()}
    given |= {"spark.executor.cores": "4", "spark.task.cpus": "2"}
    given |= {"spark.dynamicAllocation.enabled": "true"} if settings else {}
    default = numbers[0] if asked.first is None else 2
    assert elastic_numbers("run_elastic", asked, given, lambda: default) == Numbers(*numbers, elastic=True)


def never() -> int:
    raise AssertionError("slots were counted, though the user has given a number")


def test_numbers_that_contradict_one_another() -> None:
    with pytest.raises(InvalidArgumentError, match=r"num_proc is 2, .* min_num_proc \(3\) to max_num_proc \(2\)"):
        elastic_numbers("run_elastic", Asked(2, 3), {}, never)
    dynamic = {"spark.dynamicAllocation.enabled": "true", "spark.dynamicAllocation.maxExecutors": "2"}
    with pytest.raises(InvalidArgumentError, match=r"to max_num_proc \(2, from spark.dynamicAllocation.maxExecutors\)"):
        elastic_numbers("run_elastic", Asked(3), dynamic, never)


def test_the_pairs_are_settings_that_spark_has() -> None:
    pairs = {name: value for name, value in vars(conf).items() if isinstance(value, tuple)}
    assert len(pairs) == 17 and all(name.startswith("SPARK_CONF_") for name in pairs)
    assert {pair[0] for pair in pairs.values()} == set(conf.SPARK_CONF_DEFAULT_VALUES)
    # Spark refuses to start where a node may have as many attempts as a task.
    attempts, failures = conf.SPARK_CONF_REUSE_NODE_ALWAYS_FOR_SAME_TASK[1], conf.SPARK_CONF_ALWAYS_RESTART_FAILED_TASK
    assert int(attempts) < int(failures[1])


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> FakeSession:
    """Each attempt of a task is in an executor of its own."""
    made, numbers = FakeSession(), itertools.count()
    monkeypatch.setattr(session, "active", lambda caller: made)
    monkeypatch.setattr(tasks, "where_this_is", lambda environ: ("m", f"e{next(numbers)}"))
    return made


def trains(place: str, dies: str) -> Any:
    import numpy

    import horovod.numpy as hvd

    hvd.init()
    state = hvd.elastic.ObjectState(step=0, sizes=[])

    @hvd.elastic.run
    def train(state: Any) -> Any:
        while state.step < 8 or (hvd.size() < 2 and dies):
            total = hvd.allreduce(numpy.ones(1), op=hvd.Sum, name="of a step")
            assert total[0] == hvd.size()
            state.step += 1
            state.sizes = [*state.sizes, hvd.size()]
            if dies and hvd.rank() == hvd.size() - 1 and state.step == 3:
                try:
                    os.close(os.open(os.path.join(place, "dead"), os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    pass
                else:
                    os.kill(os.getpid(), signal.SIGKILL)
            state.commit()
        return hvd.rank(), hvd.size(), state.step

    return train(state)


def test_a_job_without_failures_returns_by_rank(spark: FakeSession, tmp_path: Path, capfd: Any) -> None:
    found = horovod.spark.run_elastic(trains, (str(tmp_path), ""), num_proc=2, min_num_proc=1)
    assert found == [(0, 2, 8), (1, 2, 8)]
    assert "horovod.spark.run_elastic: running 2 processes in 2 Spark tasks." in capfd.readouterr().err


def test_a_rank_that_is_killed_costs_its_task_and_spark_starts_another(spark: FakeSession, tmp_path: Path) -> None:
    class Lines:
        text = ""

        def write(self, text: str) -> None:
            self.text += text

    lines = Lines()
    found = horovod.spark.run_elastic(
        trains, (str(tmp_path), "yes"), num_proc=2, min_num_proc=1, stdout=lines, stderr=lines
    )
    assert [each[:2] for each in found] == [(0, 2), (1, 2)], lines.text
    (job,) = spark.jobs
    assert len(job.failures) == 1 and "have ended before the job, which goes on" in job.failures[0], lines.text
    assert "horovod.spark.run_elastic: " in lines.text and "horovodrun" not in lines.text, lines.text


def test_names_of_other_times(spark: FakeSession) -> None:
    with (
        pytest.warns(DeprecationWarning, match="run_elastic: min_np is deprecated; use min_num_proc"),
        pytest.raises(InvalidArgumentError, match=r"num_proc is 2, which must be from min_num_proc \(3\)"),
    ):
        horovod.spark.run_elastic(trains, ("", ""), num_proc=2, min_np=3)
