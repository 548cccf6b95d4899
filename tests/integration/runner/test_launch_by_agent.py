"""A job by an agent, with a program in ssh's place that stays on this machine: what needs neither root nor sshd."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from .conftest import Horovodrun, python, wait_for_end

HOST = "-np 2 -H elsewhere.invalid:2"


@pytest.fixture
def launch(horovodrun: Horovodrun, tmp_path: Path) -> Horovodrun:
    """A launcher whose other hosts are all this one."""
    program = tmp_path / "stay"
    program.write_text('#!/bin/sh\nshift\nexec sh -c "$*"\n')
    program.chmod(0o755)
    horovodrun.environ["OMPI_MCA_plm_rsh_agent"] = str(program)
    return horovodrun


def test_output_and_exit_code(launch: Horovodrun) -> None:
    done = launch.python(
        HOST,
        """
        import os, sys
        print(os.environ["HOROVOD_HOSTNAME"], os.environ["HOROVOD_RANK"], flush=True)
        sys.exit(5 * int(os.environ["HOROVOD_RANK"]))
        """,
    )
    assert done.returncode == 5
    assert sorted(done.stdout.splitlines()) == [
        b"[0]<stdout>:elsewhere.invalid 0",
        b"[1]<stdout>:elsewhere.invalid 1",
    ]
    assert b"rank 1 (elsewhere.invalid, pid " in done.stderr


def test_what_a_rank_s_child_writes_last_is_shown(launch: Horovodrun) -> None:
    # The child outlives its rank and holds the pipe: it is killed with the job, and what it has written is kept.
    code = "import os, time\nif os.fork() == 0:\n    print('child', flush=True)\n    time.sleep(100)\ntime.sleep(0.3)"
    done = launch(HOST, python(code))
    assert done.returncode == 0
    assert sorted(done.stdout.splitlines()) == [b"[0]<stdout>:child", b"[1]<stdout>:child"]


@pytest.mark.parametrize("victim", ["launcher", "agent"])
def test_nothing_outlives_its_master(launch: Horovodrun, victim: str) -> None:
    process = launch.start(
        HOST.split(), python("import os, time; print(os.getpid(), os.getppid(), flush=True); time.sleep(300)")
    )
    assert process.stdout is not None
    lines = [process.stdout.readline().rpartition(b":")[2].split() for _ in range(2)]
    ranks, keeper = [int(rank) for rank, _ in lines], int(lines[0][1])
    agent = int(Path(f"/proc/{keeper}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(process.pid if victim == "launcher" else agent, signal.SIGKILL)
    for pid in (*ranks, keeper, agent):
        wait_for_end(pid)
    _, stderr = process.communicate(timeout=20)
    assert list(launch.place.iterdir()) == []
    if victim == "agent":
        assert b"elsewhere.invalid (ranks 0, 1) was lost: the connection to it has ended" in stderr
