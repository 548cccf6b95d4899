"""A job on several hosts that hangs: the launcher names host, rank, tensor and line, and gets the dumps of all."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Callable

import pytest

from ..conftest import Hosts
from ..network import Running

HEAD = """import os, signal, sys, time
import numpy as np
import horovod.numpy as hvd
hvd.init()
one = np.ones(3, np.float32)
hvd.allreduce(one, name="first")
"""
SKIPS = """
def validate():
    time.sleep(1000)

if hvd.rank() == 3:
    validate()
hvd.allreduce(one, name="grad.w")
"""
LOOPS = """
def search():
    while True:
        pass

if hvd.rank() == 3:
    search()
hvd.allreduce(one, name="grad.w")
"""
STOPPED = """
if hvd.rank() == 3:
    os.kill(os.getpid(), signal.SIGSTOP)
hvd.allreduce(one, name="grad.w")
"""
pytestmark = pytest.mark.slow

OPTIONS = "-np 4 -H host1:1,host2:2,host3:1"
WARN = "--stall-check-warning-time-seconds 1"
PATIENCE_S = 40.0

Hang = Callable[..., "Hanging"]


class Hanging:
    """A job under way, and what its launcher has written so far."""

    def __init__(self, hosts: Hosts, place: Path, code: str, options: str) -> None:
        (place / "train.py").write_text(HEAD + code)
        self.place = place
        self.written = place / "stderr"
        with self.written.open("wb") as stderr:
            self.running: Running = hosts.start(
                f"{OPTIONS} {options}", [sys.executable, "train.py"], stderr=stderr, stdout=stderr, cwd=place
            )

    def until(self, text: str) -> str:
        """Waits until this was written; what was written by then."""
        deadline_s = time.monotonic() + PATIENCE_S
        while text not in (found := self.written.read_text()):
            assert time.monotonic() < deadline_s, found
            assert self.running.entered.poll() is None, found
            time.sleep(0.05)
        return found

    def line_of(self, code: str) -> int:
        """The number of the line of the script that holds this."""
        lines = (self.place / "train.py").read_text().splitlines()
        return next(number for number, line in enumerate(lines, 1) if code in line)


@pytest.fixture
def hang(hosts: Hosts, tmp_path: Path) -> Iterator[Hang]:
    """Starts jobs that hang, and ends them."""
    jobs: list[Hanging] = []

    def start(code: str, options: str = WARN) -> Hanging:
        jobs.append(Hanging(hosts, tmp_path, code, options))
        return jobs[-1]

    yield start
    for job in jobs:
        if job.running.entered.poll() is None:
            job.running.signal(signal.SIGTERM)
        job.running.end()
    hosts.is_clean()


def test_a_rank_that_skips_an_operation(hang: Hang, tmp_path: Path) -> None:
    job = hang(SKIPS, f"{WARN} --dump-directory dumps")
    told = job.until("rank 3 (host3) has not called allreduce 'grad.w' (waited for by ranks 0-2 for ")
    line = job.line_of("time.sleep")
    assert f"s); it is in train.py:{line}, in validate(), after finishing allreduce 'first'\n" in told
    assert f"horovodrun: Where the ranks are (all stacks: {tmp_path}/dumps/hang.txt):\n" in told
    ranks = json.loads((tmp_path / "dumps" / "hang.json").read_text())["ranks"]
    assert [(rank["rank"], rank["host"]) for rank in ranks] == [(0, "host1"), (1, "host2"), (2, "host2"), (3, "host3")]
    assert [len(rank["pending"]) for rank in ranks] == [1, 1, 1, 0]
    assert f"    train.py:{job.line_of('grad.w')}, in <module>\n" in (tmp_path / "dumps" / "hang.txt").read_text()


def test_a_loop_that_never_ends(hang: Hang) -> None:
    job = hang(LOOPS)
    told = job.until("rank 3 (host3) has not called allreduce 'grad.w' (waited for by ranks 0-2 for ")
    lines = (job.line_of("while True"), job.line_of("pass"))
    assert any(f"it is in train.py:{line}, in search()" in told for line in lines)
    assert "until the job ends; --dump-directory keeps them; if the job fails, they are copied to " in told


def test_a_job_that_stands_still_ends(hang: Hang) -> None:
    job = hang(SKIPS, f"{WARN} --hang-shutdown-time-seconds 4")
    assert job.running.entered.wait(PATIENCE_S) == 1
    told = job.written.read_text()
    assert "horovodrun: all ranks have stood still for 4 s" in told
    assert f"it is in train.py:{job.line_of('time.sleep')}, in validate()" in told


def test_a_rank_that_works_on_another_host_keeps_the_job(hang: Hang) -> None:
    code = SKIPS.replace("time.sleep(1000)", "[(sum(range(10**5)), time.sleep(0.02)) for _ in range(250)]")
    job = hang(code, f"{WARN} --hang-shutdown-time-seconds 2")
    assert job.running.entered.wait(PATIENCE_S) == 0, job.written.read_text()


def test_a_rank_that_is_stopped(hang: Hang) -> None:
    job = hang(STOPPED)
    job.until("rank 3 (host3) may not have called allreduce 'grad.w' (waited for by ranks 0-2 for ")
    job.until("it gave no dump (stopped by a signal or a debugger)")


def test_the_signal_asks_all_hosts(hang: Hang) -> None:
    job = hang(SKIPS.replace("    time.sleep", "    print('at work')\n    time.sleep"), "")
    job.until("at work")
    deadline_s = time.monotonic() + PATIENCE_S
    # Before an operation has waited for half a second, it may be on its way.
    while "has not called" not in job.written.read_text():
        assert time.monotonic() < deadline_s
        job.running.signal(signal.SIGUSR2)
        time.sleep(0.5)
    told = job.until("rank 3 (host3) has not called allreduce 'grad.w' (waited for by ranks 0-2 for ")
    assert f"it is in train.py:{job.line_of('time.sleep')}, in validate()" in told


def test_a_host_that_does_not_answer_is_named(hang: Hang, hosts: Hosts) -> None:
    job = hang(SKIPS.replace("    time.sleep", "    print('at work')\n    time.sleep"), "")
    job.until("at work")
    agents = [pid for pid, words in hosts.network[2].processes().items() if "runner.remote.agent" in words]
    agent = next(pid for pid in agents if Path(f"/proc/{pid}/comm").read_text().startswith("python"))
    os.kill(agent, signal.SIGSTOP)
    job.running.signal(signal.SIGUSR2)
    job.running.entered.wait(PATIENCE_S)  # the agent's keeper ends what is there, and the agent itself
    told = job.written.read_text()
    assert "ranks 1, 2 (host2) " in told and "gave no dump (host2 " in told, told
    assert "host2 (ranks 1, 2) was lost: nothing was heard from it for " in told
