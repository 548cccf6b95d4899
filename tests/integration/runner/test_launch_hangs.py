"""A job that hangs, with real ranks: the launcher names the rank that is behind and the line of its script."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Callable

import pytest

from .conftest import PATIENCE_S, Horovodrun

HEAD = """import os, re, signal, threading, time
import numpy as np
import horovod.numpy as hvd
hvd.init()
one = np.ones(3, np.float32)
hvd.allreduce(one, name="first")
"""
SKIPS = """
def validate():
    time.sleep(1000)

if hvd.rank() == 1:
    validate()
hvd.allreduce(one, name="grad.w")
"""
LOOPS = """
def search():
    while True:
        pass

if hvd.rank() == 1:
    search()
hvd.allreduce(one, name="grad.w")
"""
OTHERWISE = """
if hvd.rank() == 1:
    hvd.broadcast(one, 0, name="b")
hvd.allreduce(one, name="a")
"""
STOPPED = """
if hvd.rank() == 1:
    os.kill(os.getpid(), signal.SIGSTOP)
hvd.allreduce(one, name="grad.w")
"""
# The matcher gives the interpreter lock to nobody.
NO_PYTHON = """
if hvd.rank() == 1:
    re.match("(a+)+$", "a" * 64 + "b")
hvd.allreduce(one, name="grad.w")
"""
WARN = "--stall-check-warning-time-seconds 1"

Hang = Callable[..., "Hanging"]


class Hanging:
    """A job under way, and what its launcher has written so far."""

    def __init__(self, horovodrun: Horovodrun, place: Path, code: str, options: str) -> None:
        self.place = place
        (place / "train.py").write_text(HEAD + code)
        self.written = place / "stderr"
        with self.written.open("wb") as stderr:
            self.process = horovodrun.start(
                options.split(), [sys.executable, "train.py"], stderr=stderr, stdout=stderr, cwd=place
            )

    def until(self, text: str) -> str:
        """Waits until this was written; what was written by then."""
        deadline_s = time.monotonic() + PATIENCE_S
        while text not in (found := self.written.read_text()):
            assert time.monotonic() < deadline_s, found
            assert self.process.poll() is None, found
            time.sleep(0.05)
        return found

    def line_of(self, code: str) -> int:
        """The number of the line of the script that holds this."""
        lines = (self.place / "train.py").read_text().splitlines()
        return next(number for number, line in enumerate(lines, 1) if code in line)

    def end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise


@pytest.fixture
def hang(horovodrun: Horovodrun, tmp_path: Path) -> Iterator[Hang]:
    """Starts jobs that hang; ends them, and looks that nothing is left."""
    jobs: list[Hanging] = []

    def start(code: str, options: str) -> Hanging:
        jobs.append(Hanging(horovodrun, tmp_path, code, options))
        return jobs[-1]

    yield start
    for job in jobs:
        job.end()
    assert list(horovodrun.place.iterdir()) == []


def test_a_rank_that_skips_an_operation(hang: Hang, tmp_path: Path) -> None:
    job = hang(SKIPS, f"-np 3 {WARN} --dump-directory dumps")
    told = job.until("rank 1 has not called allreduce 'grad.w' (waited for by ranks 0, 2 for ")
    line = job.line_of("time.sleep")
    assert f"s); it is in train.py:{line}, in validate(), after finishing allreduce 'first'\n" in told
    assert f"horovodrun: Where the ranks are (all stacks: {tmp_path}/dumps/hang.txt):\n" in told
    for name in ("hang.txt", "hang.json"):
        assert stat.S_IMODE((tmp_path / "dumps" / name).stat().st_mode) == 0o600
    ranks = json.loads((tmp_path / "dumps" / "hang.json").read_text())["ranks"]
    assert [[one["what"] for one in rank["pending"]] for rank in ranks] == [
        ["allreduce 'grad.w'"],
        [],
        ["allreduce 'grad.w'"],
    ]
    assert ranks[0]["pending"][0]["dtype"] == "float32"
    assert ranks[0]["pending"][0]["shape"] == [3]
    assert ranks[1]["finished"][-1]["what"] == "allreduce 'first'"
    text = (tmp_path / "dumps" / "hang.txt").read_text()
    assert f"    train.py:{job.line_of('grad.w')}, in <module>\n" in text
    assert "HOROVOD_" not in text and "environ" not in text


def test_a_loop_that_never_ends(hang: Hang) -> None:
    job = hang(LOOPS, f"-np 2 {WARN}")
    told = job.until("rank 1 has not called allreduce 'grad.w' (waited for by rank 0 for ")
    lines = (job.line_of("while True"), job.line_of("pass"))
    assert any(f"it is in train.py:{line}, in search()" in told for line in lines)
    assert "until the job ends; --dump-directory keeps them; if the job fails, they are copied to " in told


def test_a_job_that_stands_still_ends_and_its_stacks_are_kept(hang: Hang, tmp_path: Path) -> None:
    job = hang(SKIPS, f"-np 3 {WARN} --hang-shutdown-time-seconds 3 --dump-directory dumps")
    assert job.process.wait(PATIENCE_S) == 1
    told = job.written.read_text()
    assert told.endswith("(HOROVOD_HANG_SHUTDOWN_TIME_SECONDS; 0 = never).\n"), told
    assert "horovodrun: all ranks have stood still for 3 s" in told
    assert f"it is in train.py:{job.line_of('time.sleep')}, in validate()" in told
    assert (tmp_path / "dumps" / "hang.txt").is_file()


@pytest.mark.parametrize("works", ["sum(range(10**5))", "print('still at it')"], ids=["computes", "writes"])
def test_a_rank_that_others_wait_for_may_take_its_time(hang: Hang, works: str) -> None:
    code = SKIPS.replace("time.sleep(1000)", f"[({works}, time.sleep(0.02)) for _ in range(200)]")
    job = hang(code, f"-np 2 {WARN} --hang-shutdown-time-seconds 2")
    assert job.process.wait(PATIENCE_S) == 0, job.written.read_text()


def test_ranks_in_different_operations(hang: Hang) -> None:
    job = hang(OTHERWISE, f"-np 2 {WARN}")
    told = job.until("rank 1 has not called allreduce 'a'")
    assert f"it waits for broadcast 'b' in train.py:{job.line_of('broadcast')}, in <module>" in told
    assert "rank 0 has not called broadcast 'b'" in told


def test_a_rank_that_is_stopped(hang: Hang) -> None:
    job = hang(STOPPED, f"-np 2 {WARN}")
    job.until("rank 1 may not have called allreduce 'grad.w' (waited for by rank 0 for ")
    job.until("it gave no dump (stopped by a signal or a debugger)")


def test_a_rank_whose_interpreter_runs_no_python(hang: Hang) -> None:
    job = hang(NO_PYTHON, f"-np 2 {WARN}")
    job.until("rank 1 may not have called allreduce 'grad.w' (waited for by rank 0 for ")
    told = job.until("where native code lets no Python run")
    assert f"it is in train.py:{job.line_of('re.match')}, in <module> (there in " in told


def test_the_signal_asks_all_ranks(hang: Hang) -> None:
    job = hang(SKIPS.replace("    time.sleep", "    print('at work')\n    time.sleep"), "-np 2")
    job.until("at work")
    # Before an operation has waited for half a second, it may be on its way.
    for _ in range(100):
        job.process.send_signal(signal.SIGUSR2)
        time.sleep(0.2)
        if "has not called" in job.written.read_text():
            break
    told = job.until("rank 1 has not called allreduce 'grad.w' (waited for by rank 0 for ")
    assert f"it is in train.py:{job.line_of('time.sleep')}, in validate()" in told


def test_without_dumps_the_stall_is_reported_alone(hang: Hang) -> None:
    job = hang(SKIPS, f"-np 2 {WARN} --no-dump-on-stall --dump-signal none")
    job.until("rank 1 has not submitted: allreduce 'grad.w' (2 s)")
    assert "Where the ranks are" not in job.written.read_text()


def test_a_program_that_handles_the_signal_keeps_it(horovodrun: Horovodrun, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import os, signal\nheard = []\nsignal.signal(signal.SIGUSR2, lambda *_: heard.append(1))\n"
        + HEAD
        + "os.kill(os.getpid(), signal.SIGUSR2)\ntime.sleep(0.1)\nassert heard == [1]\n"
    )
    done = horovodrun("-np 2", [sys.executable, str(tmp_path / "train.py")])
    assert done.returncode == 0, done.stderr
    assert b"Where the ranks are" not in done.stderr


def test_a_child_of_a_rank_asks_for_nothing(horovodrun: Horovodrun, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        HEAD + "pid = os.fork()\nif pid == 0:\n    os.kill(os.getpid(), signal.SIGUSR2)\n    os._exit(0)\n"
        "os.waitpid(pid, 0)\nhvd.allreduce(one, name='last')\n"
    )
    done = horovodrun("-np 2", [sys.executable, str(tmp_path / "train.py")])
    assert done.returncode == 0, done.stderr
    assert b"Where the ranks are" not in done.stderr


def test_under_another_launcher_rank_0_compares(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(HEAD + SKIPS)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("HOROVOD")}
    environ.update(
        PYTHONPATH=str(Path(__file__).resolve().parents[3] / "python"),
        HOROVOD_DUMP_DIR="dumps",
        HOROVOD_STALL_CHECK_TIME_SECONDS="1",
        HOROVOD_STALL_SHUTDOWN_TIME_SECONDS="4",
        WORLD_SIZE="2",
        LOCAL_WORLD_SIZE="2",
        MASTER_PORT="1",
    )
    ranks = [
        subprocess.Popen(
            [sys.executable, "train.py"],
            env={**environ, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            cwd=tmp_path,
            stderr=subprocess.PIPE,
        )
        for rank in range(2)
    ]
    try:
        told = ranks[0].communicate(timeout=PATIENCE_S)[1].decode()
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
            if rank.stderr is not None:
                rank.stderr.close()
    line = (HEAD + SKIPS).splitlines().index("    time.sleep(1000)") + 1
    assert (
        "[rank 0] Where the ranks are:\n  rank 1 has not called allreduce 'grad.w' (waited for by rank 0 for " in told
    )
    assert f"it is in train.py:{line}, in validate()" in told
    for path in (tmp_path / "dumps").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
