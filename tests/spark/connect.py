"""`horovod.spark.run` and `run_elastic` on a server of Spark Connect, with two executors: `make test-spark`.

Only with Spark 4: the wheel of 3.5 has no server. See `sessions`.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark import __version__
from pyspark.sql import SparkSession
from sessions import MARK, Lines, Run, executors, fails, nothing_is_left, of_ours, placed, stands, trains  # noqa: F401

import horovod.spark


@pytest.fixture(scope="module", autouse=True)
def session() -> Iterator[Any]:
    name, _, value = MARK.partition("=")
    builder = SparkSession.builder.remote("local-cluster[2,1,1024]").appName("connect")
    for key, setting in {
        "spark.ui.enabled": "false",
        "spark.sql.connect.progress.reportInterval": "3600s",
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "512m",
        f"spark.executorEnv.{name}": value,
        "spark.executorEnv.OF_THE_EXECUTOR": "yes",
    }.items():
        builder = builder.config(key, setting)
    made = builder.getOrCreate()
    print(f"pyspark {__version__}, {type(made).__module__}")
    yield made
    made.stop()


def test_results_by_rank_and_lines_here() -> None:
    lines = Lines()
    found = horovod.spark.run(placed, ("hello",), num_proc=2, stdout=lines)
    assert found == [(rank, 2, 2, [3.0] * 3, "yes", []) for rank in (0, 1)]
    assert sorted(lines.text.splitlines()) == ["[0]<stdout>:hello rank 0", "[1]<stdout>:hello rank 1"]
    start_s = time.monotonic()
    assert len(horovod.spark.run(placed)) == 2  # of the application's default parallelism
    print(f"a second run takes {time.monotonic() - start_s:.1f} s")


def test_the_rank_that_fails_is_named() -> None:
    with pytest.raises(RuntimeError, match=r"rank 1 \(\S+, pid \d+\) exited with code 1[\s\S]*the data end here"):
        horovod.spark.run(fails, num_proc=2)


def test_too_few_slots_are_named() -> None:
    start_s = time.monotonic()
    with pytest.raises(ValueError, match=r"5 processes need 5 task slots .* has 2 .* Lower num_proc to 2"):
        horovod.spark.run(placed, num_proc=5)
    assert time.monotonic() - start_s < 5


def test_slots_that_others_hold_are_waited_for_in_bounds(session: Any) -> None:
    holds = Run(stands, lambda: session.addTag("holds"), num_proc=2)
    holds.lines.wait_for("up: rank 1")
    for run in (horovod.spark.run, horovod.spark.run_elastic):
        start_s = time.monotonic()
        with pytest.raises(RuntimeError, match=r"task slots has not ended in [5-7] s\. Other jobs may hold"):
            run(placed, num_proc=1, start_timeout=7)
        assert time.monotonic() - start_s < 15
    session.interruptTag("holds")
    assert isinstance(holds.ended(), RuntimeError)
    assert len(horovod.spark.run(placed, num_proc=2)) == 2  # the queries hold no slot


def test_two_runs_at_once() -> None:
    runs = [Run(placed, num_proc=1) for _ in range(2)]
    assert [run.ended()[0][:2] for run in runs] == [(0, 1), (0, 1)]


def test_a_tag_that_the_user_interrupts(session: Any) -> None:
    run = Run(stands, lambda: session.addTag("ours"), num_proc=2)
    run.lines.wait_for("up: rank 1")
    assert len(of_ours()) >= 4
    session.interruptTag("ours")
    assert "Spark says: " in str(run.ended()) and "ancel" in str(run.found), run.found


def test_ctrl_c() -> None:
    lines = Lines()

    def interrupt() -> None:
        lines.wait_for("up: rank 0")
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        horovod.spark.run(stands, num_proc=2, stdout=lines)
    assert horovod.spark.run(placed, num_proc=1)[0][:2] == (0, 1)


def test_an_executor_that_is_killed() -> None:
    run = Run(stands, num_proc=2)
    run.lines.wait_for("up: rank 1")
    os.kill(executors()[0], signal.SIGKILL)
    assert isinstance(run.ended(), RuntimeError) and "was lost" in str(run.found), run.found
    assert len(horovod.spark.run(placed, num_proc=2)) == 2  # Spark has started another one


def test_an_elastic_job_grows_into_a_slot_that_comes(session: Any) -> None:
    holds = Run(stands, lambda: session.addTag("a slot"), num_proc=1)
    holds.lines.wait_for("up: rank 0")
    run = Run(trains, run=horovod.spark.run_elastic, args=((1, 2),), num_proc=1, max_num_proc=2)
    run.lines.wait_for("ranks [1]")
    session.interruptTag("a slot")
    assert isinstance(holds.ended(), RuntimeError)
    assert run.ended() == [(0, 2), (1, 2)], run.lines.text


def test_an_elastic_job_survives_the_loss_of_an_executor() -> None:
    run = Run(trains, run=horovod.spark.run_elastic, args=((2, 1, 2),), num_proc=2, min_num_proc=1)
    run.lines.wait_for("ranks [2]")
    os.kill(executors()[-1], signal.SIGKILL)
    assert run.ended() == [(0, 2), (1, 2)], run.lines.text
