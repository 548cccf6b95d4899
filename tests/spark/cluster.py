"""`horovod.spark.run` on a standalone cluster of Spark: the driver and the master on one host, two workers on others.

The hosts are sets of namespaces (tests/hosts/network.py), which takes root. See `sessions` for the rest.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
from hosts.network import Network, Running, why_absent

ROOT = Path(__file__).resolve().parents[2]
_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
_DRIVER = """
import json, sys, time
from pyspark.sql import SparkSession
import horovod.spark

builder = SparkSession.builder.master(f"spark://{sys.argv[1]}:7077")
for name, value in {
    "spark.driver.host": sys.argv[1], "spark.cores.max": "4", "spark.executor.memory": "512m",
    "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false",
}.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()

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
    print(json.dumps([round(time.monotonic() - start_s, 1), found]), flush=True)

def fails():
    import horovod.numpy as hvd

    hvd.init()
    if hvd.rank() == 3:
        raise ValueError("the data end here")
    hvd.barrier()

timed(lambda: horovod.spark.run(placed, num_proc=4, verbose=0))
timed(lambda: horovod.spark.run(placed, num_proc=4, verbose=0))
timed(lambda: horovod.spark.run(fails, num_proc=4, verbose=0))
timed(lambda: horovod.spark.run(placed, num_proc=5, verbose=0))

def stands():
    import horovod.numpy as hvd

    hvd.init()
    print("up", flush=True)
    time.sleep(100)

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
        "SPARK_LOCAL_IP": network[host].address,
    }
    with (place / f"host{host}.log").open("ab") as log:
        return network[host].start([str(_CLASS), *words], environ, stdout=log, stderr=log)


def test_four_ranks_on_two_workers_and_a_driver_that_is_killed(network: Network, tmp_path: Path) -> None:
    at = network[1].address
    deploy = "org.apache.spark.deploy"
    daemons = [started(network, 1, tmp_path, f"{deploy}.master.Master", "--host", at, "--port", "7077")]
    for host in (2, 3):
        words = ("--host", network[host].address, "-c", "2", "-m", "1g", f"spark://{at}:7077")
        daemons.append(started(network, host, tmp_path, f"{deploy}.worker.Worker", *words))
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": at}
    driver = network[1].start([sys.executable, "-c", _DRIVER, at], environ)
    try:
        lines = [json.loads(line) for line in itertools.islice(iter(driver.entered.stdout.readline, b""), 4)]
        print("\n".join(map(str, lines)))
        names = [result[0] for result in lines[0][1]]
        expected: list[Any] = [[names[rank], rank, rank % 2, 2, 2, 10.0] for rank in range(4)]
        assert lines[0][1] == expected and {*names[:2]} != {*names[2:]} and {*names} == {"host2", "host3"}
        assert lines[1][1][0][1:] == expected[0][1:]
        assert "rank 3 (host" in lines[2][1] and "the data end here" in lines[2][1]
        assert "5 processes need 5 task slots" in lines[3][1] and "has 4" in lines[3][1]
        assert [driver.entered.stdout.readline().partition(b":")[2] for _ in range(4)] == [b"up\n"] * 4
        driver.signal(signal.SIGKILL)
        driver.end()
        deadline_s = time.monotonic() + 10
        while (left := of_ours(network)) and time.monotonic() < deadline_s:
            time.sleep(0.2)
        assert left == []
    finally:
        for each in (driver, *daemons):
            each.kill()


def of_ours(network: Network) -> list[str]:
    """What lives on the hosts besides Spark's own processes."""
    found = [words for host in (1, 2, 3) for words in network[host].processes().values()]
    return [words for words in found if "java" not in words and "pyspark.daemon" not in words]
