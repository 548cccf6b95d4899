"""A job by an agent, with a program in ssh's place that stays on this machine: what needs neither root nor sshd."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from horovod.runner.machines.cores import usable_cores
from horovod.runner.remote.wire import frames, messages

from .conftest import Horovodrun, alive, python, wait_for_end

HOST = "-np 2 -H elsewhere.invalid:2"


def test_output_and_exit_code(by_agent: Horovodrun) -> None:
    done = by_agent.python(
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


def test_what_a_rank_s_child_writes_last_is_shown(by_agent: Horovodrun) -> None:
    # The child outlives its rank and holds the pipe: it is killed with the job, and what it has written is kept.
    code = "import os, time\nif os.fork() == 0:\n    print('child', flush=True)\n    time.sleep(100)\ntime.sleep(0.3)"
    done = by_agent(HOST, python(code))
    assert done.returncode == 0
    assert sorted(done.stdout.splitlines()) == [b"[0]<stdout>:child", b"[1]<stdout>:child"]


@pytest.mark.parametrize("leaves", ["group", "session"])
def test_a_program_in_a_group_of_its_own_has_called_init(leaves: str, by_agent: Horovodrun, tmp_path: Path) -> None:
    """As `timeout` in a script starts it."""
    (tmp_path / "train.py").write_text("import horovod.numpy as hvd\nhvd.init()\nprint('rank', hvd.rank())\n")
    option = "process_group=0" if leaves == "group" else "start_new_session=True"
    starts = f"import subprocess, sys\nsubprocess.run([sys.executable, 'train.py'], check=True, {option})\n"
    done = by_agent(HOST, [sys.executable, "-c", starts], cwd=tmp_path)
    assert done.returncode == 0 and done.stdout.count(b">:rank ") == 2, done.stderr
    assert b"hvd.init()" not in done.stderr


def test_a_job_that_hangs_tells_where(by_agent: Horovodrun, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import time\nimport numpy as np\nimport horovod.numpy as hvd\nhvd.init()\n"
        "if hvd.rank() == 1: time.sleep(1000)\nhvd.allreduce(np.ones(3), name='w')\n"
    )
    stalls = "--stall-check-warning-time-seconds 1 --stall-check-shutdown-time-seconds 2 --dump-directory dumps"
    done = by_agent(f"{HOST} {stalls}", [sys.executable, "train.py"], cwd=tmp_path)
    told = done.stderr.decode()
    assert "horovodrun:   rank 1 has not called allreduce 'w' (waited for by rank 0 for " in told
    assert "it is in train.py:5, in <module>" in told
    assert [rank["host"] for rank in json.loads((tmp_path / "dumps" / "hang.json").read_text())["ranks"]] == (
        ["elsewhere.invalid"] * 2
    )


def test_the_dumps_of_a_killed_launcher_go_with_it(by_agent: Horovodrun, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import time\nimport numpy as np\nimport horovod.numpy as hvd\nhvd.init()\n"
        "if hvd.rank() == 1: time.sleep(1000)\nhvd.allreduce(np.ones(3), name='w')\n"
    )
    words = [*HOST.split(), "--stall-check-warning-time-seconds", "1"]
    process = by_agent.start(words, [sys.executable, "train.py"], cwd=tmp_path)
    assert process.stderr is not None
    told = next(line for line in process.stderr if b"Where the ranks are" in line)
    assert Path(told.split(b"all stacks: ")[1].partition(b",")[0].decode()).exists()
    process.kill()
    process.communicate(timeout=20)
    deadline_s = time.monotonic() + 10.0
    while list(by_agent.place.iterdir()) and time.monotonic() < deadline_s:
        time.sleep(0.02)
    assert list(by_agent.place.iterdir()) == []


def test_cores_are_looked_for_on_the_host(by_agent: Horovodrun) -> None:
    done = by_agent(f"{HOST} --thread-affinity 1048576", ["true"])
    assert done.returncode == 1
    assert b"elsewhere.invalid cannot be used: --thread-affinity: no thread may run on core 1048576; " in done.stderr
    crowd = 4 * usable_cores() + 1
    done = by_agent(f"-np {crowd} -H elsewhere.invalid:{crowd} --verbose", ["true"])
    assert done.returncode == 0
    assert f"elsewhere.invalid: {crowd} ranks; {usable_cores()} usable core".encode() in done.stderr
    assert f"elsewhere.invalid: {crowd} ranks share {usable_cores()} core".encode() in done.stderr


def started(by_agent: Horovodrun) -> tuple[subprocess.Popen[bytes], tuple[int, int, int, int]]:
    """A launcher, and its processes: two ranks, keeper, agent."""
    process = by_agent.start(
        HOST.split(), python("import os, time; print(os.getpid(), os.getppid(), flush=True); time.sleep(300)")
    )
    assert process.stdout is not None
    lines = [process.stdout.readline().rpartition(b":")[2].split() for _ in range(2)]
    ranks, keeper = [int(rank) for rank, _ in lines], int(lines[0][1])
    agent = int(Path(f"/proc/{keeper}/stat").read_text().rpartition(")")[2].split()[1])
    return process, (ranks[0], ranks[1], keeper, agent)


@pytest.mark.slow
def test_a_stopped_agent_is_given_up_on_both_sides(by_agent: Horovodrun) -> None:
    process, (*ranks, keeper, agent) = started(by_agent)
    os.kill(agent, signal.SIGSTOP)
    for pid in (*ranks, keeper, agent):  # nobody lets it go on
        wait_for_end(pid)
    _, stderr = process.communicate(timeout=20)
    assert re.search(
        rb"elsewhere\.invalid \(ranks 0, 1\) was lost: nothing was heard from it for (5\.9|6\.\d) s", stderr
    )
    assert list(by_agent.place.iterdir()) == []


@pytest.mark.slow
def test_a_stopped_keeper_is_no_dead_agent(by_agent: Horovodrun) -> None:
    process, (*ranks, keeper, _) = started(by_agent)
    os.kill(keeper, signal.SIGSTOP)
    time.sleep(7.0)  # longer than a keeper waits for its agent
    os.kill(keeper, signal.SIGCONT)
    time.sleep(2.0)
    assert process.poll() is None and all(map(alive, ranks))
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 128 + signal.SIGTERM
    process.communicate()
    assert list(by_agent.place.iterdir()) == []


@pytest.mark.parametrize("victim", ["launcher", "agent"])
def test_nothing_outlives_its_master(by_agent: Horovodrun, victim: str) -> None:
    process, (*ranks, keeper, agent) = started(by_agent)
    os.kill(process.pid if victim == "launcher" else agent, signal.SIGKILL)
    for pid in (*ranks, keeper, agent):
        wait_for_end(pid)
    _, stderr = process.communicate(timeout=20)
    assert list(by_agent.place.iterdir()) == []
    if victim == "agent":
        assert b"elsewhere.invalid (ranks 0, 1) was lost: the connection to it has ended" in stderr


def test_ctrl_z_while_hosts_are_called_stops_the_launcher_and_no_more(by_agent: Horovodrun, tmp_path: Path) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)
    slow = tmp_path / "slow"
    slow.write_text(f'#!/bin/sh\nread word <{go}\nshift\nexec sh -c "$*"\n')
    slow.chmod(0o755)
    by_agent.environ["OMPI_MCA_plm_rsh_agent"] = str(slow)
    process = by_agent.start(HOST.split(), python("print('ran')"))
    with go.open("w") as pipe:  # opened when the host is being called
        process.send_signal(signal.SIGTSTP)
        assert os.WIFSTOPPED(os.waitpid(process.pid, os.WUNTRACED)[1])
        process.send_signal(signal.SIGCONT)
        pipe.write("go\n")
    stdout, stderr = process.communicate(timeout=20)
    assert (process.returncode, stdout.count(b"ran")) == (0, 2), stderr


def test_a_killed_keeper_leaves_neither_processes_nor_shared_memory(by_agent: Horovodrun) -> None:
    code = """
        import multiprocessing.shared_memory, os, subprocess, time
        memory = multiprocessing.shared_memory.SharedMemory(create=True, size=4096)
        print(memory.name, subprocess.Popen(["sleep", "1000"], start_new_session=True).pid, flush=True)
        os.kill(os.getppid(), 9)
        time.sleep(1000)
    """
    done = by_agent.python("-np 1 -H elsewhere.invalid:1", code)
    assert b"the process that keeps its ranks has died" in done.stderr
    name, daemon = done.stdout.decode().rpartition(":")[2].split()
    assert not alive(int(daemon)) and name not in os.listdir("/dev/shm")


def test_what_a_killed_keeper_leaves_is_ended_before_the_agent_counts_as_silent(by_agent: Horovodrun) -> None:
    """Also a process that cleans up, which has more time where --link-timeout leaves it."""
    code = """
        import os, subprocess, sys, time
        words = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(1000)", "multiprocessing.resource_tracker"]
        print(subprocess.Popen(words, start_new_session=True).pid, flush=True)
        os.kill(os.getppid(), 9)
        time.sleep(1000)
    """
    done = by_agent.python("-np 1 -H elsewhere.invalid:1 --link-timeout 1", code)
    assert b"was lost: the process that keeps its ranks has died" in done.stderr, done.stderr
    assert not alive(int(done.stdout.decode().rpartition(":")[2]))


def an_agent_that_is_ready(horovodrun: Horovodrun, *before: str) -> subprocess.Popen[bytes]:
    """One that has checked its job, and was not told to go; behind these words."""
    words = [*before, sys.executable, "-m", "horovod.runner.remote.agent", "5"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "env": horovodrun.environ}
    ranks = [{"rank": 0, "env": {"HOROVOD_SIZE": "1"}}]
    link = {"address": "127.0.0.1", "key": "0" * 64}
    rest = {"interfaces": [], "affinity": [], "dump_signal": 0, "elastic": False, "link": link, "vitals_every": 0}
    rest["at_home"] = False
    job = messages.encode("job", command=["true"], cwd="/", env={}, ranks=ranks, function=False, dumps=False, **rest)
    agent = subprocess.Popen(words, **pipes)
    agent.stdin.write(frames.frame(frames.CONTROL, job))
    agent.stdin.flush()
    reader, seen = frames.Reader(frames.FROM_AGENT, marked=True), b""
    while b'"ready"' not in seen and (data := os.read(agent.stdout.fileno(), 1 << 16)):
        seen += b"".join(body for _, body in reader.feed(data))
    assert b'"ready"' in seen and list(horovodrun.place.glob("*/*")) != []
    return agent


def test_an_agent_that_is_terminated_before_its_ranks_start_takes_its_directory_along(horovodrun: Horovodrun) -> None:
    with an_agent_that_is_ready(horovodrun) as agent:
        agent.terminate()
        assert agent.wait(20) == 128 + signal.SIGTERM
    assert list(horovodrun.place.iterdir()) == []


def test_an_agent_that_is_stopped_before_its_ranks_start_ends_with_its_connection(horovodrun: Horovodrun) -> None:
    # The shell is in sshd's place, which ends with the connection.
    with an_agent_that_is_ready(horovodrun, "sh", "-c", '"$@"; true', "sh") as shell:
        agent = int(Path(f"/proc/{shell.pid}/task/{shell.pid}/children").read_text())
        os.kill(agent, signal.SIGSTOP)
        shell.kill()
    try:
        wait_for_end(agent)
    finally:
        if alive(agent):
            os.kill(agent, signal.SIGKILL)
    assert list(horovodrun.place.iterdir()) == []
