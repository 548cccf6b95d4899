"""`horovod.spark.run` with tasks on two hosts: what stands for Spark are processes that share a folder."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from .conftest import Hosts

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]

_TASK = """
import pathlib, pickle, sys, time

place, partition = pathlib.Path(sys.argv[1]), int(sys.argv[2])

def waited(name):
    while not (place / name).exists():
        time.sleep(0.02)
    return (place / name).read_bytes()

class Context:
    def partitionId(self):
        return partition

    taskAttemptId = partitionId

pickle.loads(waited("task")).work(Context())
"""
_DRIVER = """
import json, os, pathlib, pickle, sys
import horovod.spark
from horovod.spark import session

place = pathlib.Path(sys.argv[1])

class Job:
    def ended(self, patience_s=0.0):
        return False

    def why(self):
        return ""

    def cancel(self):
        pass

class Session:
    conf = {"spark.driver.host": sys.argv[2]}

    def default_tasks(self, *limits):
        return 3

    def await_slots(self, *limits):
        pass

    def executors(self):
        return ["192.0.2.7"]

    def start(self, numbers, task, description):
        (place / "new").write_bytes(pickle.dumps(task))
        (place / "new").rename(place / "task")
        return Job()

def placed(fails):
    import socket
    import numpy as np
    import horovod.numpy as hvd

    hvd.init()
    total = float(hvd.allreduce(np.array([hvd.rank() + 1.0]), op=hvd.Sum)[0])
    if fails and hvd.rank() == 2:
        raise ValueError("the data end here")
    return socket.gethostname(), hvd.rank(), hvd.local_rank(), hvd.local_size(), hvd.cross_size(), total

session.active = lambda caller: Session()
from horovod.spark import driving
driving._END_S = 0.0
try:
    print(json.dumps(horovod.spark.run(placed, (bool(sys.argv[3]),), verbose=0)), flush=True)
except RuntimeError as error:
    print(json.dumps(str(error)), flush=True)
"""


@pytest.mark.parametrize("fails", ["", "fails"])
def test_ranks_of_tasks_on_two_hosts(hosts: Hosts, tmp_path: Path, fails: str) -> None:
    where = str(tmp_path)
    tasks = [
        hosts.start_program([sys.executable, "-c", _TASK, where, str(partition)], on=host)
        for partition, host in enumerate((2, 3, 2))
    ]
    ended = hosts.ended(hosts.start_program([sys.executable, "-c", _DRIVER, where, hosts.network[1].address, fails]))
    assert ended.code == 0, ended
    found = json.loads(ended.out[-1])
    if fails:
        assert found.startswith("horovod.spark.run: rank 2 (host3, pid ") and "the data end here" in found
    else:
        assert found == [["host2", 0, 0, 2, 2, 6.0], ["host2", 1, 1, 2, 1, 6.0], ["host3", 2, 0, 1, 2, 6.0]]
    assert [hosts.ended(task).code for task in tasks] == [0, 0, 0]
    hosts.is_clean()
