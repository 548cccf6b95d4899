"""Whatever dies, or is cut off: the job ends soon, says who was lost, and nothing of it is left on any host."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import pytest

from ..conftest import Hosts, python
from ..network import Running

pytestmark = pytest.mark.slow

# A rank that has a child of its own, in a session of its own, and says when both are there.
RANK = """
    import os, subprocess, sys, time
    child = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(300)"], start_new_session=True)
    print("ready", flush=True)
    time.sleep(300)
"""
OPTIONS = "-np 4 -H host1:1,host2:2,host3:1"


@pytest.fixture
def job(hosts: Hosts) -> Running:
    """Ranks that run, one, two and one."""
    running = hosts.start(OPTIONS, python(RANK))
    assert running.entered.stdout is not None
    for _ in range(4):
        assert b"ready" in running.entered.stdout.readline()
    return running


def processes(hosts: Hosts, host: int, *words: str) -> list[int]:
    """Those on a host whose command has all of these words."""
    found = hosts.network[host].processes()
    return sorted(pid for pid, command in found.items() if all(word in command for word in words))


def test_a_killed_rank_is_named(hosts: Hosts, job: Running) -> None:
    os.kill(ranks_of(hosts, 2)[0], signal.SIGKILL)
    ended = hosts.end(job, patience_s=15.0)
    assert ended.code == 128 + signal.SIGKILL
    assert ended.err[-1].startswith("horovodrun: rank ")
    assert "(host2, pid " in ended.err[-1] and "was killed by signal 9" in ended.err[-1]


@pytest.mark.parametrize(("host", "ranks"), [(1, "rank 0"), (2, "ranks 1, 2")])
def test_a_killed_agent_takes_its_ranks_along(hosts: Hosts, job: Running, host: int, ranks: str) -> None:
    agents = processes(hosts, host, "runner.remote.agent", "python")
    os.kill([pid for pid in agents if not _is_ssh(pid)][0], signal.SIGKILL)
    ended = hosts.end(job, patience_s=15.0)
    assert ended.code == 1
    assert f"host{host} ({ranks}) was lost" in ended.err[-1]


def ranks_of(hosts: Hosts, host: int) -> list[int]:
    """The ranks on a host."""
    found = hosts.network[host].processes()
    return sorted(pid for pid, command in found.items() if "print(" in command and "horovod.runner" not in command)


def _is_ssh(pid: int) -> bool:
    with open(f"/proc/{pid}/comm") as file:
        return file.read().strip() in ("ssh", "sshd", "bash", "sh")


def test_a_killed_keeper_takes_its_ranks_along(hosts: Hosts, job: Running) -> None:
    os.kill(processes(hosts, 3, "keeper.py")[0], signal.SIGKILL)
    ended = hosts.end(job, patience_s=15.0)
    assert ended.code == 1
    assert "host3 (rank 3) was lost: the process that keeps its ranks has died" in ended.err[-1]


def test_ranks_of_a_killed_launcher_end(hosts: Hosts, job: Running) -> None:
    job.signal(signal.SIGKILL)
    job.end()
    hosts.is_clean()


def test_ranks_of_a_stopped_launcher_end(hosts: Hosts, job: Running) -> None:
    job.signal(signal.SIGSTOP)
    began = time.monotonic()
    while ranks_of(hosts, 2) or ranks_of(hosts, 1):
        assert time.monotonic() - began < 8.5
        time.sleep(0.02)
    job.signal(signal.SIGCONT)
    assert hosts.end(job).code == 1


def test_ranks_go_on_while_ctrl_z_holds_the_launcher(hosts: Hosts, job: Running) -> None:
    job.signal(signal.SIGTSTP)
    _until(lambda: _state(job.pid) == "T", time.monotonic())
    time.sleep(8.0)  # longer than anybody is patient otherwise
    assert ranks_of(hosts, 1) and ranks_of(hosts, 2)
    job.signal(signal.SIGCONT)
    time.sleep(2.0)
    assert ranks_of(hosts, 1) and ranks_of(hosts, 2) and job.entered.poll() is None
    job.signal(signal.SIGINT)
    assert hosts.end(job).code == 130


def test_a_killed_ssh_is_a_lost_host(hosts: Hosts, job: Running) -> None:
    ssh = [pid for pid in processes(hosts, 1, "ssh", "host3") if _is_ssh(pid)]
    os.kill(ssh[0], signal.SIGKILL)
    ended = hosts.end(job, patience_s=15.0)
    assert ended.code == 1
    assert "host3 (rank 3) was lost" in ended.err[-1]


def test_a_cut_link_is_noticed_on_both_sides(hosts: Hosts, job: Running) -> None:
    network = hosts.network
    began = time.monotonic()
    network.cut(network[2])
    try:
        remote_s = _until(lambda: not ranks_of(hosts, 2), began)
        done = job.end(20.0)
        local_s = time.monotonic() - began
    finally:
        network.join(network[2])
    assert remote_s < 7.0  # --link-timeout and a second and a half, and what takes the ranks to end
    assert local_s < 7.5
    assert done.returncode == 1
    assert "host2 (ranks 1, 2) was lost: " in done.stderr.decode().splitlines()[-1]
    hosts.is_clean()


def _until(over: Callable[[], bool], began: float) -> float:
    while not over():
        assert time.monotonic() - began < 20.0
        time.sleep(0.02)
    return time.monotonic() - began


def _state(pid: int) -> str:
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return file.read().rpartition(")")[2].split()[0]


def test_a_launcher_that_is_killed_while_it_calls_leaves_nothing(hosts: Hosts) -> None:
    for delay_s in (0.05, 0.1, 0.2, 0.3, 0.4, 0.6):
        running = hosts.start(OPTIONS, python("import time; time.sleep(300)"))
        time.sleep(delay_s)
        running.signal(signal.SIGKILL)
        running.end()
        hosts.is_clean()


def test_ctrl_c_while_hosts_are_called(hosts: Hosts) -> None:
    network = hosts.network
    network.cut(network[3])
    try:
        running = hosts.start(OPTIONS, python("import time; time.sleep(300)"))
        assert running.entered.stderr is not None
        assert b"2/3 hosts answer; waiting for host3" in running.entered.stderr.readline()
        running.signal(signal.SIGINT)
        done = running.end(10.0)
    finally:
        network.join(network[3])
    assert done.returncode == 128 + signal.SIGINT
