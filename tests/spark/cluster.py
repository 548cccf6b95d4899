"""Jobs on a standalone cluster of Spark: the driver and the master on one host, two workers on others.

The hosts are sets of namespaces (tests/hosts/network.py), which takes root. See `sessions` for the rest.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
import pytest
from hosts.network import Network, Running, why_absent

ROOT = Path(__file__).resolve().parents[2]
_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
_DRIVER = """
import contextlib, json, sys, threading, time
from pyspark.sql import SparkSession
import horovod.spark

builder = SparkSession.builder.master(f"spark://{sys.argv[1]}:7077")
for name, value in {
    "spark.driver.host": sys.argv[1], "spark.cores.max": "4", "spark.executor.memory": "512m",
    "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false",
}.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")

def placed():
    import socket, numpy
    import horovod.numpy as hvd

    hvd.init()
    total = float(hvd.allreduce(numpy.array([hvd.rank() + 1.0]), op=hvd.Sum)[0])
    return socket.gethostname(), hvd.rank(), hvd.local_rank(), hvd.local_size(), hvd.cross_size(), total

def timed(work):
    start_s = time.monotonic()
    try:
        found = work()
    except Exception as error:
        found = f"{type(error).__name__}: {error}"
    print("=" + json.dumps([round(time.monotonic() - start_s, 1), found]), flush=True)

def fails():
    import horovod.numpy as hvd

    hvd.init()
    if hvd.rank() == 3:
        raise ValueError("the data end here")
    hvd.barrier()

def stands():
    import horovod.numpy as hvd

    hvd.init()
    print("up", flush=True)
    time.sleep(100)

def trains(least):
    # until the job has had so few ranks, and has four
    import numpy
    import horovod.numpy as hvd

    hvd.init()
    state = hvd.elastic.ObjectState(seen=[])

    @hvd.elastic.run
    def steps(state):
        while least not in state.seen or hvd.size() < 4:
            total = hvd.allreduce(numpy.ones(1), op=hvd.Sum, name="of a step")
            assert total[0] == hvd.size()
            if not state.seen or state.seen[-1] != hvd.size():
                state.seen = [*state.seen, hvd.size()]
                if hvd.rank() == 0:
                    print("ranks", *state.seen, flush=True)
            state.commit()
            time.sleep(0.05)  # executors that come need the processors, too
        return hvd.rank(), hvd.size()

    return steps(state)

class When:
    # calls something when a word has come so often
    def __init__(self, word, times, call):
        self.word, self.left, self.call = word, times, call

    def write(self, text):
        self.left -= text.count(self.word)
        if self.left == 0:
            threading.Thread(target=self.call).start()

    def flush(self):
        pass

def cancel():
    spark.sparkContext.cancelJobGroup("ours")

def holds():
    spark.sparkContext.setJobGroup("ours", "two slots")
    with contextlib.suppress(RuntimeError):
        horovod.spark.run(stands, num_proc=2, verbose=0, stdout=When("up", 2, held.set))

held = threading.Event()
"""
_RUNS = """
timed(lambda: horovod.spark.run(placed, num_proc=4, verbose=0))
timed(lambda: horovod.spark.run(placed, num_proc=4, verbose=0))
timed(lambda: horovod.spark.run(fails, num_proc=4, verbose=0))
timed(lambda: horovod.spark.run(placed, num_proc=5, verbose=0))
timed(lambda: horovod.spark.run(stands, num_proc=4, verbose=0))
timed(lambda: horovod.spark.run(placed, num_proc=4, verbose=0))
spark.sparkContext.setJobGroup("ours", "a test")
timed(lambda: horovod.spark.run(stands, num_proc=4, verbose=0, stdout=When("up", 4, cancel)))
"""
_ELASTIC_JOBS = """
timed(lambda: horovod.spark.run_elastic(trains, (2,), num_proc=4, min_num_proc=1, verbose=0))
threading.Thread(target=holds).start()
held.wait()
growing = When("ranks 2", 1, cancel)
timed(lambda: horovod.spark.run_elastic(trains, (2,), num_proc=2, max_num_proc=4, verbose=0, stdout=growing))
horovod.spark.run(stands, num_proc=4, verbose=0)
"""


@pytest.fixture
def network() -> Iterator[Network]:
    reason = why_absent()
    if reason is not None:
        pytest.skip(reason)
    made = Network(3)
    yield made
    made.close()


def started(network: Network, host: int, place: Path, *words: str) -> Running:
    """A daemon of Spark's."""
    environ = {
        **os.environ,
        "SPARK_NO_DAEMONIZE": "1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT / "python"),
        "SPARK_WORKER_DIR": str(place / f"work{host}"),
        "SPARK_LOCAL_DIRS": str(place / f"local{host}"),
        "SPARK_LOCAL_IP": network[host].address,
    }
    with (place / f"host{host}.log").open("ab") as log:
        return network[host].start([str(_CLASS), *words], environ, stdout=log, stderr=log)


@contextmanager
def driving(network: Network, place: Path, jobs: str) -> Iterator[Driver]:
    """A program with these jobs, on a cluster with a worker of two slots on each of two hosts."""
    at = network[1].address
    deploy = "org.apache.spark.deploy"
    running = [started(network, 1, place, f"{deploy}.master.Master", "--host", at, "--port", "7077")]
    for host in (2, 3):
        words = ("--host", network[host].address, "-c", "2", "-m", "1g", f"spark://{at}:7077")
        running.append(started(network, host, place, f"{deploy}.worker.Worker", *words))
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": at}
    with (place / "driver.log").open("wb") as log:
        driver = Driver(network, [sys.executable, "-c", _DRIVER + jobs, at], environ, log)
    try:
        yield driver
    finally:
        for each in (driver.running, *running):
            each.kill()


def test_runs_on_two_workers(network: Network, tmp_path: Path) -> None:
    with driving(network, tmp_path, _RUNS) as driver:
        found = driver.result()
        names = [result[0] for result in found]
        expected: list[Any] = [[names[rank], rank, rank % 2, 2, 2, 10.0] for rank in range(4)]
        assert found == expected and {*names[:2]} != {*names[2:]} and {*names} == {"host2", "host3"}
        assert driver.result()[0][1:] == expected[0][1:]
        found = driver.result()
        assert "rank 3 (host" in found and "the data end here" in found
        found = driver.result()
        assert "5 processes need 5 task slots" in found and "has 4" in found
        driver.wait_for(*["up"] * 4)
        kill_the_executor(network, 2)
        assert "was lost" in driver.result()
        assert len(driver.result()) == 4
        found = driver.result()
        assert "Spark says: " in found and "ancelled" in found


def test_elastic_jobs_on_two_workers_and_a_driver_that_is_killed(network: Network, tmp_path: Path) -> None:
    with driving(network, tmp_path, _ELASTIC_JOBS) as driver:
        driver.wait_for("ranks 4")
        kill_the_executor(network, 3)
        driver.wait_for("ranks 4 2")
        assert driver.result() == [[rank, 4] for rank in range(4)]
        assert driver.result() == [[rank, 4] for rank in range(4)]
        driver.wait_for(*["up"] * 4)
        driver.running.signal(signal.SIGKILL)
        driver.running.end()
        assert nothing_is_left(network, driver.pid)


class Driver:
    """The program, and what it says: lines of its ranks, and behind = its results."""

    def __init__(self, network: Network, words: list[str], environ: dict[str, str], log: Any) -> None:
        self.running = network[1].start(words, environ, stderr=log)
        self.pid = self.running.pid
        self._network = network
        self._log = log.name
        self._heard = ""

    def _line(self) -> str:
        line = self.running.entered.stdout.readline().decode()
        assert line, f"the driver has ended: {self._heard}{Path(self._log).read_text()[-4000:]}"
        self._heard += line
        return line

    def result(self) -> Any:
        """The next one; then nothing of its job is left."""
        while not (line := self._line()).startswith("="):
            pass
        seconds, found = json.loads(line[1:])
        print(f"{seconds} s: {found}")
        assert nothing_is_left(self._network, self.pid)
        return found

    def wait_for(self, *lines: str) -> None:
        """Lines of ranks, of which each begins so."""
        for words in lines:
            while not (line := self._line()).partition(":")[2].startswith(words):
                assert not line.startswith("="), self._heard


def kill_the_executor(network: Network, host: int) -> None:
    (pid,) = (pid for pid, words in network[host].processes().items() if "CoarseGrainedExecutor" in words)
    os.kill(pid, signal.SIGKILL)


def nothing_is_left(network: Network, driver: int) -> bool:
    deadline_s = time.monotonic() + 10
    while (left := of_ours(network, driver)) and time.monotonic() < deadline_s:
        time.sleep(0.2)
    assert left == []
    return True


def of_ours(network: Network, driver: int) -> list[str]:
    """What lives on the hosts besides Spark's own processes and the driver."""
    found = [words for host in (1, 2, 3) for pid, words in network[host].processes().items() if pid != driver]
    return [words for words in found if "java" not in words and "pyspark.daemon" not in words]
