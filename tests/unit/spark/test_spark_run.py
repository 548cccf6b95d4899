"""`horovod.spark.run` over a session made of threads: agents, ranks and the connections between them are real."""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_spark import FakeSession

import horovod.spark
from horovod._core.errors import InvalidArgumentError, UnsupportedError
from horovod.spark import horovod_runner, session, tasks
from horovod.spark.task import VARIABLE, get_available_devices


def placed(word: str) -> tuple[Any, ...]:
    import horovod.numpy as hvd
    from horovod.spark.task import get_available_devices

    hvd.init()
    print(f"{word} of {hvd.rank()}", flush=True)
    return hvd.rank(), hvd.size(), hvd.local_size(), get_available_devices(), os.environ.get("OURS"), os.getcwd()


def fails_on_rank_1() -> None:
    import horovod.numpy as hvd

    hvd.init()
    if hvd.rank() == 1:
        raise ValueError("the data end here")
    time.sleep(30)


def secrets_in_sight() -> list[str]:
    words = [word for name in ("environ", "cmdline") for word in Path("/proc/self", name).read_text().split("\0")]
    return [word for word in words if "SECRET" in word and not word.startswith("_HOROVOD_SECRET_KEY=")]


@pytest.fixture(autouse=True)
def spark(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeSession]:
    made = FakeSession()
    monkeypatch.setattr(session, "active", lambda caller: made)
    yield made
    assert all(job.ended(10.0) for job in made.jobs)


class OnlyWrites:
    """What a user may give for `stdout`."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> None:
        self.text += text


def test_results_come_by_rank_and_lines_as_they_are_written(
    spark: FakeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses = iter(("4", "7", "1"))
    monkeypatch.setattr(tasks, "get_available_devices", lambda: [next(addresses)])
    monkeypatch.setenv("PYTHON_WORKER_FACTORY_SECRET", "of Spark's")
    out, err = OnlyWrites(), OnlyWrites()
    found = horovod.spark.run(placed, ("hello",), env={"OURS": "yes"}, stdout=out, stderr=err)
    assert [each[:3] for each in found] == [(0, 2, 2), (1, 2, 2)]
    assert sorted(each[3][0] for each in found) == ["4", "7"] and {each[4:] for each in found} == {("yes", os.getcwd())}
    assert sorted(out.text.splitlines()) == ["[0]<stdout>:hello of 0", "[1]<stdout>:hello of 1"]
    assert err.text.startswith("horovod.spark.run: running 2 processes in 2 Spark tasks.\n")
    assert horovod.spark.run(secrets_in_sight, num_proc=1, verbose=0) == [[]]


def test_the_rank_that_fails_is_named_with_its_traceback_and_the_job_is_cancelled(spark: FakeSession) -> None:
    with pytest.raises(RuntimeError, match=r"rank 1 \(\S+, pid \d+\) exited with code 1 [\s\S]*the data end here"):
        horovod.spark.run(fails_on_rank_1, num_proc=2)
    assert spark.jobs[0].cancelled


def test_containers_of_one_machine_are_hosts_whose_ranks_use_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = itertools.count()
    monkeypatch.setattr(tasks, "where_this_is", lambda environ: (f"m{next(numbers)}", "e"))
    assert [each[:3] for each in horovod.spark.run(placed, ("apart",))] == [(0, 2, 1), (1, 2, 1)]


def test_two_runs_at_once() -> None:
    found: dict[int, Any] = {}
    runs = [
        threading.Thread(target=lambda n=n: found.update({n: horovod.spark.run(placed, ("at once",), num_proc=n)}))
        for n in (1, 2)
    ]
    for run in runs:
        run.start()
    for run in runs:
        run.join(50)
    assert {n: [each[:2] for each in results] for n, results in found.items()} == {1: [(0, 1)], 2: [(0, 2), (1, 2)]}


def test_what_spark_says_of_a_job_that_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "active", lambda caller: FakeSession(why="Job 3 was cancelled"))
    with pytest.raises(RuntimeError, match="Spark has ended the job before a rank started: Job 3 was cancelled"):
        horovod.spark.run(placed, ("",))


def test_tasks_that_do_not_come_are_counted(spark: FakeSession, monkeypatch: pytest.MonkeyPatch) -> None:
    come, release = threading.Event(), threading.Event()

    def work(task: tasks.Task, context: Any) -> None:
        come.set()
        release.wait(20)

    monkeypatch.setattr(tasks.Task, "work", work)
    with pytest.raises(RuntimeError, match=r"0 of 2 tasks have started .* in 0.5 s \(start_timeout, .* 127.0.0.1 port"):
        horovod.spark.run(placed, ("",), start_timeout=0.5)
    release.set()
    assert come.is_set() and spark.jobs[0].cancelled


def test_a_task_without_the_secret_gets_nothing(spark: FakeSession, monkeypatch: pytest.MonkeyPatch) -> None:
    start = spark.start
    monkeypatch.setattr(spark, "start", lambda n, task, text: start(n, replace(task, secret=bytes(32)), text))
    with pytest.raises(
        RuntimeError, match="the job before a rank started: The launcher cannot be reached at 127.0.0.1"
    ):
        horovod.spark.run(placed, ("",))


@pytest.mark.parametrize(
    "given, error, text",
    [
        ({"use_mpi": True}, UnsupportedError, "use_mpi is not supported: .* Leave it out"),
        ({"extra_mpi_args": "-x A"}, UnsupportedError, "extra_mpi_args is not supported"),
        ({"env": ["A=1"]}, InvalidArgumentError, "env must be a dictionary of variables"),
        ({"env": {"A": 1}}, InvalidArgumentError, "must be texts. Received: 'A': 1"),
        ({"stdout": "file"}, InvalidArgumentError, "must be objects that can write"),
        ({"start_timeout": -1}, InvalidArgumentError, "start_timeout must be a number of seconds above 0"),
        ({"num_proc": 0}, InvalidArgumentError, "horovod.spark.run: num_proc"),
        ({"nics": 5}, InvalidArgumentError, "horovod.spark.run: nics"),
        ({"args": "x"}, InvalidArgumentError, "horovod.spark.run: args is a str"),
    ],
)
def test_arguments_that_cannot_be(given: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        horovod.spark.run(**{"fn": placed, "args": ("",), **given})


def test_the_variable_of_the_time_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_SPARK_START_TIMEOUT", "soon")
    with pytest.raises(InvalidArgumentError, match="HOROVOD_SPARK_START_TIMEOUT must be .* Received: 'soon'"):
        horovod.spark.run(placed, ("",))


def test_without_pyspark_and_without_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(ModuleNotFoundError, match="horovod.spark.run needs Spark for Python, .* pip install pyspark"):
        horovod.spark.run(placed, ("",))
    nothing = SimpleNamespace(SparkContext=SimpleNamespace(_active_spark_context=None))
    old = SimpleNamespace(SparkSession=SimpleNamespace(active=lambda: SimpleNamespace(conf=object())))
    modules = {"pyspark": nothing, "pyspark.sql": old, "pyspark.sql.utils": SimpleNamespace(is_remote=lambda: True)}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    with pytest.raises(UnsupportedError, match="is one of Spark Connect before Spark 4, .* Remedy: use Spark 4"):
        horovod.spark.run(placed, ("",))
    old.SparkSession = SimpleNamespace()
    with pytest.raises(RuntimeError, match="there is no active session .*SparkSession.builder.getOrCreate"):
        horovod.spark.run(placed, ("",))
    monkeypatch.setitem(sys.modules, "pyspark.sql.utils", SimpleNamespace(is_remote=lambda: False))
    with pytest.raises(RuntimeError, match="there is no active SparkContext .*SparkSession.builder.getOrCreate"):
        horovod.spark.run(placed, ("",))


def test_the_runner_of_notebooks(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert horovod.spark.HorovodRunner(np=-1).run(lambda x: x + 1, x=1) == 2
    assert horovod.spark.HorovodRunner(np=2).run(placed, word="quiet")[:2] == (0, 2)
    assert "quiet" not in capsys.readouterr().out
    asked: list[dict[str, Any]] = []
    for name in ("run", "run_here"):
        monkeypatch.setattr(horovod_runner, name, lambda main, **given: asked.append(given) or ["rank 0's", "other"])
    for np in (0, -2):
        assert horovod.spark.HorovodRunner(np=np, driver_log_verbosity="all").run(placed, word="x") == "rank 0's"
    given = {"kwargs": {"word": "x"}}
    assert asked == [{**given, "num_proc": None, "stdout": None, "stderr": None}, {**given, "num_proc": 2}]
    for wrong in ({"np": "2"}, {"np": 2, "driver_log_verbosity": "some"}):
        with pytest.raises(InvalidArgumentError, match="HorovodRunner: "):
            horovod.spark.HorovodRunner(**wrong)


def test_the_gpus_of_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert get_available_devices() == []
    context = SimpleNamespace(resources=lambda: {"gpu": SimpleNamespace(addresses=["2"])})
    monkeypatch.setitem(sys.modules, "pyspark", SimpleNamespace(TaskContext=SimpleNamespace(get=lambda: context)))
    assert get_available_devices() == ["2"]
    monkeypatch.setenv(VARIABLE, "0,1")
    assert get_available_devices() == ["0", "1"]
