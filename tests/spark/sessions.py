"""`horovod.spark.run` and `run_elastic` in real sessions: `make test-spark`. Two executors of this machine, a JVM each.

By the name of the file, no other run of the tests collects it: pyspark and Java are not in the environment of the rest.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable, Optional

import pytest

os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark import SparkContext, __version__
from pyspark.sql import SparkSession

import horovod.spark

MARK = f"HVD_SPARK_SESSIONS={os.getpid()}"


@pytest.fixture(scope="module")
def context() -> Iterator[SparkContext]:
    name, _, value = MARK.partition("=")
    builder = SparkSession.builder.master("local-cluster[2,1,1024]").appName("sessions")
    for key, setting in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "512m",
        f"spark.executorEnv.{name}": value,
        "spark.executorEnv.OF_THE_EXECUTOR": "yes",
    }.items():
        builder = builder.config(key, setting)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    print(f"pyspark {__version__}")
    yield session.sparkContext
    session.stop()


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    deadline_s = time.monotonic() + 10
    while (left := of_ours()) and time.monotonic() < deadline_s:
        time.sleep(0.1)
    assert left == []


def of_ours() -> list[str]:
    """Agents, keepers and ranks that live: what executors have started, besides Spark's own workers."""
    found = [words for _, words, environ in processes() if MARK in environ]
    return [words for words in found if "java" not in words and "pyspark.daemon" not in words]


def executors() -> list[int]:
    """Those of this session: others may run on this machine."""
    return [pid for pid, words, environ in processes() if MARK in environ and "CoarseGrainedExecutor" in words]


def processes() -> Iterator[tuple[int, str, str]]:
    """Number, words and variables of each process that may be looked at."""
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words, environ = ((place / name).read_bytes().replace(b"\0", b" ").decode("latin1") for name in NAMES)
        except OSError:
            continue
        if words:
            yield int(place.name), words, environ


NAMES = ("cmdline", "environ")


class Lines:
    """What ranks have written."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> None:
        self.text += text

    def flush(self) -> None:
        """Nothing is kept back."""

    def wait_for(self, words: str) -> None:
        deadline_s = time.monotonic() + 150
        while words not in self.text:
            assert time.monotonic() < deadline_s, self.text
            time.sleep(0.05)


class Run(threading.Thread):
    """A call of `run` in a thread of its own."""

    def __init__(
        self,
        fn: Callable[..., Any],
        before: Optional[Callable[[], None]] = None,
        run: Callable[..., Any] = horovod.spark.run,
        **given: Any,
    ) -> None:
        super().__init__(daemon=True)
        self._fn, self._before, self._run, self._given = fn, before, run, given
        self.lines = Lines()
        self.found: Any = None
        self.start()

    def run(self) -> None:
        try:
            if self._before:
                self._before()
            self.found = self._run(self._fn, stdout=self.lines, stderr=self.lines, **self._given)
        except RuntimeError as error:
            self.found = error

    def ended(self, patience_s: float = 150.0) -> Any:
        self.join(patience_s)
        assert not self.is_alive(), self.lines.text
        return self.found


def of_functions() -> tuple[Callable[..., Any], ...]:
    """Functions that travel by value: the executors do not have this module."""

    def placed(word: str = "") -> tuple[Any, ...]:
        import os

        import numpy

        import horovod.numpy as hvd

        hvd.init()
        total = hvd.allreduce(numpy.ones(3) * (hvd.rank() + 1), op=hvd.Sum).tolist()
        print(f"{word} rank {hvd.rank()}", flush=True)
        secrets = [name for name in os.environ if "SECRET" in name]
        return hvd.rank(), hvd.size(), hvd.local_size(), total, os.environ.get("OF_THE_EXECUTOR"), secrets

    def stands(word: str = "") -> None:
        import time

        import horovod.numpy as hvd

        hvd.init()
        print(f"up: rank {hvd.rank()}", flush=True)
        time.sleep(50)

    def fails() -> None:
        import numpy

        import horovod.numpy as hvd

        hvd.init()
        if hvd.rank() == 1:
            raise ValueError("the data end here")
        hvd.allreduce(numpy.ones(3))

    def hangs() -> None:
        import time

        import numpy

        import horovod.numpy as hvd

        hvd.init()
        hvd.allreduce(numpy.ones(3), name="first")
        if hvd.rank() == 1:
            time.sleep(50)
        hvd.allreduce(numpy.ones(3), name="second")

    def trains(sizes: tuple[int, ...]) -> tuple[int, int]:
        """Until the job has had these numbers of ranks, in this order."""
        import time

        import numpy

        import horovod.numpy as hvd

        hvd.init()
        state = hvd.elastic.ObjectState(seen=[], step=0)

        @hvd.elastic.run
        def steps(state: Any) -> tuple[int, int]:
            while tuple(state.seen) != sizes:
                total = hvd.allreduce(numpy.ones(1), op=hvd.Sum, name="of a step")
                assert total[0] == hvd.size()
                state.step += 1
                if not state.seen or state.seen[-1] != hvd.size():
                    state.seen = [*state.seen, hvd.size()]
                    print(f"ranks {state.seen}", flush=True)
                state.commit()
                time.sleep(0.05)  # executors that come need the processors, too
            return hvd.rank(), hvd.size()

        return steps(state)

    return placed, stands, fails, hangs, trains


placed, stands, fails, hangs, trains = of_functions()


def test_results_by_rank_lines_here_and_the_executors_variables(context: SparkContext) -> None:
    lines = Lines()
    found = horovod.spark.run(placed, ("hello",), num_proc=2, stdout=lines)
    assert found == [(rank, 2, 2, [3.0] * 3, "yes", []) for rank in (0, 1)]
    assert sorted(lines.text.splitlines()) == ["[0]<stdout>:hello rank 0", "[1]<stdout>:hello rank 1"]
    assert horovod.spark.run(placed, num_proc=1)[0][:3] == (0, 1, 1)
    assert len(horovod.spark.run(placed, env={"OF_THE_EXECUTOR": "no"})) == 2


def test_own_time_beyond_an_empty_barrier_job(context: SparkContext) -> None:
    def timed(work: Callable[[], object]) -> float:
        work()
        start_s = time.monotonic()
        work()
        return time.monotonic() - start_s

    empty_s = timed(lambda: context.range(2, numSlices=2).barrier().mapPartitions(lambda rows: rows).collect())
    own_s = timed(lambda: horovod.spark.run(lambda: None, num_proc=2, verbose=0))
    print(f"an empty barrier job takes {empty_s:.2f} s, a run of nothing {own_s:.2f} s")


def test_the_rank_that_fails_is_named(context: SparkContext) -> None:
    with pytest.raises(RuntimeError, match=r"rank 1 \(\S+, pid \d+\) exited with code 1[\s\S]*the data end here"):
        horovod.spark.run(fails, num_proc=2)


def test_a_hang_is_reported_here_and_the_timeline_is_written(context: SparkContext, tmp_path: Path) -> None:
    lines, timeline = Lines(), tmp_path / "timeline.json"
    env = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "2", "HOROVOD_HANG_SHUTDOWN_TIME_SECONDS": "5"}
    env |= {"HOROVOD_TIMELINE": str(timeline), "HOROVOD_DUMP_DIR": str(tmp_path / "dumps")}
    with pytest.raises(RuntimeError, match="all ranks have stood still for 5 s"):
        horovod.spark.run(hangs, num_proc=2, stdout=lines, stderr=lines, env=env)
    assert "rank 1 has not called allreduce 'second'" in lines.text and "in hangs()" in lines.text
    assert "ALLREDUCE" in timeline.read_text() and list((tmp_path / "dumps").iterdir())


def test_too_few_slots_are_reported_at_once(context: SparkContext) -> None:
    start_s = time.monotonic()
    with pytest.raises(ValueError, match=r"5 processes need 5 task slots .* has 2 .* Lower num_proc to 2"):
        horovod.spark.run(placed, num_proc=5)
    assert time.monotonic() - start_s < 2


def test_two_runs_at_once(context: SparkContext) -> None:
    runs = [Run(placed, num_proc=1) for _ in range(2)]
    assert [run.ended()[0][:2] for run in runs] == [(0, 1), (0, 1)]


def test_a_group_that_the_user_cancels(context: SparkContext) -> None:
    run = Run(stands, lambda: context.setJobGroup("ours", "a test"), num_proc=2)
    run.lines.wait_for("up: rank 1")
    assert len(of_ours()) >= 4
    context.cancelJobGroup("ours")
    assert "Spark says: " in str(run.ended()) and "ancelled" in str(run.found), run.found


def test_ctrl_c(context: SparkContext) -> None:
    lines = Lines()

    def interrupt() -> None:
        lines.wait_for("up: rank 0")
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        horovod.spark.run(stands, num_proc=2, stdout=lines)
    assert horovod.spark.run(placed, num_proc=1)[0][:2] == (0, 1)


def test_modules_of_py_files(context: SparkContext, tmp_path: Path) -> None:
    (tmp_path / "of_py_files.py").write_text("WORD = 'found'\n")
    context.addPyFile(str(tmp_path / "of_py_files.py"))

    def asks() -> tuple[str, str]:
        import of_py_files

        return of_py_files.WORD, of_py_files.__file__

    sys.path[:] = [place for place in sys.path if "userFiles" not in place]  # the driver's own copy
    (word, file), _ = horovod.spark.run(asks, num_proc=2)
    assert word == "found" and not file.startswith(str(tmp_path))


def test_an_executor_that_is_killed(context: SparkContext) -> None:
    run = Run(stands, num_proc=2)
    run.lines.wait_for("up: rank 1")
    os.kill(executors()[0], signal.SIGKILL)
    assert isinstance(run.ended(), RuntimeError) and "was lost" in str(run.found), run.found
    print(run.found)
    assert len(horovod.spark.run(placed, num_proc=2)) == 2  # Spark has started another one


def test_an_elastic_job_grows_into_a_slot_that_comes(context: SparkContext) -> None:
    holds = Run(stands, lambda: context.setJobGroup("holds", "a slot"), num_proc=1)
    holds.lines.wait_for("up: rank 0")
    run = Run(trains, run=horovod.spark.run_elastic, args=((1, 2),), num_proc=1, max_num_proc=2)
    run.lines.wait_for("ranks [1]")
    context.cancelJobGroup("holds")
    assert isinstance(holds.ended(), RuntimeError)
    assert run.ended() == [(0, 2), (1, 2)], run.lines.text
    print(run.lines.text)


def test_an_elastic_job_survives_the_loss_of_an_executor(context: SparkContext) -> None:
    start_s = time.monotonic()
    run = Run(trains, run=horovod.spark.run_elastic, args=((2, 1, 2),), num_proc=2, min_num_proc=1)
    run.lines.wait_for("ranks [2]")
    os.kill(executors()[-1], signal.SIGKILL)
    assert run.ended() == [(0, 2), (1, 2)], run.lines.text
    print(f"{time.monotonic() - start_s:.1f} s\n{run.lines.text}")


def test_an_elastic_job_that_the_user_cancels(context: SparkContext) -> None:
    given = {"run": horovod.spark.run_elastic, "args": ((2, 3),), "num_proc": 2}
    run = Run(trains, lambda: context.setJobGroup("ours", "a test"), **given)
    run.lines.wait_for("ranks [2]")
    context.cancelJobGroup("ours")
    assert "Spark says: " in str(run.ended()) and "ancelled" in str(run.found), run.found
