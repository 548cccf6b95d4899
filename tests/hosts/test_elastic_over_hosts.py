"""Elastic jobs over hosts: ranks and hosts are lost, come and go, and the training ends as one without faults."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Hosts
from .elastic import ElasticJob

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("options", "who", "size"),
    [
        ("-np 4 -H host1:2,host2:2", "last", 2),
        ("-np 4 -H host2:2,host1:2", "first", 2),
        ("-np 4 -H host2:1,host1:1,host3:2", "first", 3),
    ],
)
def test_a_rank_is_killed(hosts: Hosts, options: str, who: str, size: int) -> None:
    with ElasticJob(hosts, f"{options} --min-np 1", [[5, who, "kill"]], steps=25) as job:
        ended = job.end()
        assert len(job.events("fault")) == 1
        job.check_end(ended, size)
        # Survivors are the same processes, and repeat no step that was committed.
        again = [event for event in job.events("epoch") if event["epoch"] == 1]
        assert {event["step"] for event in again} == {5}, job.story()


@pytest.mark.parametrize(("how", "lost"), [("cut", 2), ("agent", 2), ("host", 2), ("agent", 1)])
def test_a_host_is_lost_and_the_others_go_on(hosts: Hosts, how: str, lost: int) -> None:
    """Also that of rank 0."""
    order = "host2:2,host1:2" if lost == 2 else "host1:2,host2:2"
    options = f"-np 5 -H {order},host3:1 --min-np 2 --gloo-timeout-seconds 30"
    with ElasticJob(hosts, options, steps=10, until_size=99) as job:
        job.until(lambda: job.steps(epoch=0, step=5))
        began_s = time.monotonic()
        undo = lose(hosts, lost, how)
        try:
            job.until(lambda: len(job.steps(epoch=1)) >= 3)
            seconds = min(event["at"] for event in job.steps(epoch=1)) - began_s
            job.until(lambda: not ranks_on(hosts, lost), 8.0)
        finally:
            undo()
        assert seconds < (8.0 if how in ("cut", "host") else 5.0)
        assert {event["host"] for event in job.events("epoch") if event["epoch"] == 1} == {
            name for name in ("host1", "host2", "host3") if name != f"host{lost}"
        }
        assert [event["size"] for event in job.steps(epoch=1)][0] == 3
        (gone,) = [line for line in job.journal() if line["event"] == "hostgone"]
        assert f"host{lost} (ranks " in gone["how"] and " was lost: " in gone["how"]
        job.running.signal(signal.SIGTERM)
        ended = job.end()
        assert ended.code == 128 + signal.SIGTERM
        assert any("epoch 1: 3 ranks on " in line and "was lost: " in line for line in ended.err), ended.err


def lose(hosts: Hosts, number: int, how: str) -> Callable[[], None]:
    """Loses a host; what puts it back."""
    network, host = hosts.network, hosts.network[number]
    if how == "cut":
        network.cut(host)
        return lambda: network.join(host)
    if how == "agent":
        os.kill(agent_on(hosts, number), signal.SIGKILL)
        return lambda: None
    network.cut(host)  # a host that dies sends nothing more, either
    for pid in host.processes():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def put_back() -> None:
        for name in host.files():  # its memory was lost with it
            shutil.rmtree(f"/proc/{host.pid}/root/dev/shm/{name}")
        network.join(host)

    return put_back


def agent_on(hosts: Hosts, number: int) -> int:
    """The agent's process, not ssh's or a shell's."""
    found = hosts.network[number].processes()
    (pid,) = [pid for pid, words in found.items() if "-m horovod.runner.remote.agent" in words and "ssh" not in words]
    return pid


def ranks_on(hosts: Hosts, number: int) -> list[int]:
    """The ranks' processes there."""
    found = hosts.network[number].processes()
    return [pid for pid, words in found.items() if "training.py" in words and "horovod.runner" not in words]


def test_a_host_that_was_lost_comes_back_after_its_cooldown(hosts: Hosts) -> None:
    options = "-np 2 -H host1:1,host2:1 --min-np 1 --blacklist-cooldown-range 2 2"
    with ElasticJob(hosts, options, steps=10, until_size=99) as job:
        job.until(lambda: job.steps(epoch=0, step=5))
        os.kill(agent_on(hosts, 2), signal.SIGKILL)
        job.until(lambda: job.steps(epoch=1, size=1))
        job.until(lambda: job.steps(epoch=2, size=2))
        steps = [event["step"] for event in job.steps(rank=0)]
        assert steps == sorted(steps), "a graceful change needs no rollback"
        job.running.signal(signal.SIGTERM)
        job.end()


def test_a_host_that_was_silent_is_taken_again_when_it_is_back(hosts: Hosts) -> None:
    """Without a cool-down range, where a host on which a rank fails is given up for good."""
    network = hosts.network
    with ElasticJob(hosts, "-np 2 -H host1:1,host2:1 --min-np 1 --link-timeout 2", steps=10, until_size=99) as job:
        job.until(lambda: job.steps(epoch=0, step=5))
        network.cut(network[2])
        try:
            job.until(lambda: job.steps(epoch=1, size=1))
        finally:
            network.join(network[2])
        job.until(lambda: job.steps(epoch=2, size=2), 40.0)
        (held,) = [line for line in job.journal() if line["event"] == "held"]
        assert (held["host"], held["for_s"]) == ("host2", 10.0)
        job.running.signal(signal.SIGTERM)
        job.end()


def test_a_host_that_is_named_before_it_answers_takes_part_once_it_does(hosts: Hosts, tmp_path: Path) -> None:
    named, script, network = tmp_path / "hosts", tmp_path / "find.sh", hosts.network
    named.write_text("host1:1\n")
    script.write_text(f"#!/bin/sh\ncat {named}\n")
    script.chmod(0o755)
    network.cut(network[2])
    try:
        options = f"-np 1 --min-np 1 --start-timeout 5 --host-discovery-script {script}"
        with ElasticJob(hosts, options, steps=10, until_size=2) as job:
            job.until(lambda: job.steps(step=5))
            named.write_text("host1:1\nhost2:1\n")
            job.until(lambda: [line for line in job.journal() if line["event"] == "held"])
            network.join(network[2])
            ended = job.end()
            job.check_end(ended, 2)
            assert any("host2 cannot be used: it " in line and "given up for 10 s." in line for line in ended.err)
    finally:
        network.join(network[2])


def test_a_rank_that_stops_on_another_host_is_killed(hosts: Hosts) -> None:
    stalls = "--stall-check-warning-time-seconds 1 --stall-check-shutdown-time-seconds 2"
    options = f"-np 3 -H host1:1,host2:1,host3:1 --min-np 2 --start-timeout 4 --gloo-timeout-seconds 4 {stalls}"
    with ElasticJob(hosts, options, [[5, "last", "stop"]], steps=40) as job:
        ended = job.end()
        job.check_end(ended, 2)
        assert any("did not leave epoch 0 within 4 s of the others" in line for line in ended.err), ended.err


def test_hosts_come_and_go_with_the_script(hosts: Hosts, tmp_path: Path) -> None:
    named, script = tmp_path / "hosts", tmp_path / "find.sh"
    named.write_text("host1:1\nhost2:1\n")
    script.write_text(f"#!/bin/sh\ncat {named}\n")
    script.chmod(0o755)
    options = f"-np 2 --min-np 1 --host-discovery-script {script}"
    with ElasticJob(hosts, options, steps=10, until_size=3) as job:
        job.until(lambda: job.steps(size=2, step=4))
        named.write_text("host1:1\nhost3:1\n")  # one goes, another one comes
        job.until(lambda: [event for event in job.events("epoch") if event["host"] == "host3"])
        job.until(lambda: not hosts.network[2].processes(), 10.0)
        named.write_text("host3:1\n")  # that of rank 0
        job.until(lambda: {each["host"] for each in job.events("epoch")[-1:]} == {"host3"} and job.steps(size=1))
        named.write_text("host3:1\nhost2:2\n")
        job.until(lambda: job.steps(size=3))
        ended = job.end()
        job.check_end(ended, 3)
        ends = [line for line in job.journal() if line["event"] == "ended"]
        assert all(line["fate"] == "well" for line in ends), job.story()
        steps = [event["step"] for event in job.events("step") if event["rank"] == 0]
        assert steps == sorted(set(steps)), "a graceful change needs no rollback"


def test_all_hosts_change_at_once_while_ranks_start_and_while_they_train(hosts: Hosts, tmp_path: Path) -> None:
    named, script = tmp_path / "hosts", tmp_path / "find.sh"
    named.write_text("host2:2\n")
    script.write_text(f"#!/bin/sh\ncat {named}\n")
    script.chmod(0o755)
    options = f"-np 2 --min-np 2 --max-np 2 --host-discovery-script {script}"
    with ElasticJob(hosts, options, steps=10, start_s=3, until_size=99) as job:
        job.until(lambda: hosts.network[2].processes())
        named.write_text("")
        job.until(lambda: [line for line in job.journal() if line["event"] == "found" and not line["hosts"]])
        named.write_text("host3:2\n")
        job.until(lambda: {each["host"] for each in job.events("epoch")} == {"host3"} and job.steps(size=2, step=4))
        job.until(lambda: not hosts.network[2].processes(), 10.0)
        named.write_text("host1:2\n")
        job.until(lambda: {each["host"] for each in job.events("epoch")[-2:]} == {"host1"} and job.steps(size=2))
        job.until(lambda: not hosts.network[3].processes(), 10.0)
        last = max(event["epoch"] for event in job.events("epoch"))
        job.until(lambda: [event for event in job.events("step") if event["epoch"] == last])
        steps = [event["step"] for event in job.events("step") if event["rank"] == 0]
        assert steps == sorted(set(steps)), "a graceful change needs no rollback"


def test_a_host_that_cannot_be_used_is_given_up(hosts: Hosts, tmp_path: Path) -> None:
    named, script = tmp_path / "hosts", tmp_path / "find.sh"
    named.write_text("host1:1\nno-such-host.invalid:1\nhost2:1\n")
    script.write_text(f"#!/bin/sh\ncat {named}\n")
    script.chmod(0o755)
    with ElasticJob(hosts, f"-np 2 --host-discovery-script {script}", steps=10) as job:
        ended = job.end()
        job.check_end(ended, 2)
        assert any("no-such-host.invalid cannot be used: its name has no address" in line for line in ended.err)
    named.write_text("host1:1\nhost2:1\n")
    options = f"-np 2 --min-np 1 --blacklist-cooldown-range 1 1 --host-discovery-script {script}"
    with ElasticJob(hosts, options, steps=10, until_size=3) as job:
        job.until(lambda: job.steps(step=5))
        named.write_text("host1:1\nno-such-host.invalid:1\n127.0.0.1:1\nhost2:1\n10.77.0.12:1\n")
        ended = job.end()
        job.check_end(ended, 3)  # 127.0.0.1 is host1
        told = [line for line in ended.err if "cannot be used" in line and not line.startswith("horovodrun: epoch")]
        assert sorted(line.split(";")[0] for line in told) == [
            "horovodrun: 10.77.0.12 cannot be used: it is the same machine as host2",
            "horovodrun: no-such-host.invalid cannot be used: its name has no address",
        ]
    with ElasticJob(hosts, "-np 2 -H host1:1,no-such-host.invalid:1 --min-np 1", steps=10) as job:
        ended = job.end()
        assert ended.code == 1
        assert "no-such-host.invalid cannot be used: its name has no address" in "\n".join(ended.err)


@pytest.mark.parametrize("what", ["kill", "stop"])
def test_nothing_is_left_of_a_job_without_its_launcher(hosts: Hosts, what: str) -> None:
    with ElasticJob(hosts, "-np 3 -H host1:1,host2:1,host3:1 --min-np 1", steps=10, until_size=99) as job:
        job.until(lambda: job.steps(step=5))
        os.kill(ranks_on(hosts, 2)[0], signal.SIGKILL)
        job.until(lambda: job.steps(epoch=1))
        if what == "kill":
            job.running.signal(signal.SIGKILL)
            job.running.end()
        else:
            job.running.signal(signal.SIGSTOP)
            deadline_s = time.monotonic() + 8.0
            while any(ranks_on(hosts, number) for number in (1, 2, 3)):
                assert time.monotonic() < deadline_s
                time.sleep(0.02)
            job.running.signal(signal.SIGCONT)
            assert job.running.end().returncode == 1
        hosts.is_clean()


def test_a_job_that_begins_on_one_host_grows_to_others(hosts: Hosts, tmp_path: Path) -> None:
    """Those of the first host are reached by another address then."""
    named, script = tmp_path / "hosts", tmp_path / "find.sh"
    named.write_text("localhost:2\n")
    script.write_text(f"#!/bin/sh\ncat {named}\n")
    script.chmod(0o755)
    with ElasticJob(hosts, f"-np 2 --min-np 1 --host-discovery-script {script}", steps=10, until_size=4) as job:
        job.until(lambda: job.steps(size=2, step=4))
        named.write_text("localhost:2\nhost2:1\nhost3:1\n")
        ended = job.end()
        job.check_end(ended, 4)
        assert any("epoch 1: 4 ranks on localhost:2, host2:1, host3:1, since" in line for line in ended.err), ended.err


@pytest.mark.parametrize("who", ["first", "middle", "last"])
def test_a_second_failure_during_the_recovery(hosts: Hosts, who: str) -> None:
    """With one slot in three lost for a second each time, all are there again at the end."""
    options = "-np 4 -H host1:2,host2:1,host3:1 --min-np 1 --blacklist-cooldown-range 1 1"
    with ElasticJob(hosts, options, [[5, "last", "kill"], ["reset", who, "kill"]], steps=20, until_size=4) as job:
        ended = job.end()
        assert len(job.events("fault")) == 2, job.story()
        job.check_end(ended, job.events("end")[0]["size"])


def test_both_hosts_fail_and_the_last_one_is_not_given_up(hosts: Hosts) -> None:
    faults = [[5, "last", "kill"], [12, "last", "kill"]]
    with ElasticJob(hosts, "-np 4 -H host1:2,host2:2 --min-np 1", faults, steps=10, until_size=99) as job:
        job.until(lambda: job.steps(epoch=2, size=1))
        job.until(lambda: len(job.steps(epoch=3, size=2)) > 1)
        assert {event["host"] for event in job.events("epoch") if event["epoch"] == 3} == {"host1"}, job.story()
        assert len(job.events("fault")) == 2, job.story()
        job.running.signal(signal.SIGTERM)
        job.end()


FUNCTION = """
import os, signal, horovod, horovod.numpy as hvd, numpy as np

def train(folder):
    hvd.init()
    state = hvd.elastic.ObjectState(step=0)

    @hvd.elastic.run
    def steps(state):
        while state.step < 20:
            if state.step == 5 and hvd.rank() == 2 and not os.path.exists(folder + "/once"):
                open(folder + "/once", "x").close()
                os.kill(os.getpid(), signal.SIGKILL)
            hvd.allreduce(np.ones(1), name="step")
            state.step += 1
            state.commit()
        return hvd.rank(), state.step

    return steps(state)

found = horovod.run(train, (FOLDER,), num_proc=3, min_num_proc=1, MORE)
print("results", found)
"""


@pytest.mark.parametrize("way", ["hosts", "script"])
def test_a_function_on_elastic_hosts(hosts: Hosts, tmp_path: Path, way: str) -> None:
    script = tmp_path / "find.sh"
    script.write_text("#!/bin/sh\necho host2:1; echo host1:1; echo host3:1\n")
    script.chmod(0o755)
    more = f"host_discovery_script={str(script)!r}" if way == "script" else "hosts='host2:1,host1:1,host3:1'"
    program = FUNCTION.replace("FOLDER", repr(str(tmp_path))).replace("MORE", more)
    ended = hosts.program([sys.executable, "-c", program])
    assert ended.code == 0, ended.err
    assert ended.out[-1] == "results [(0, 20)]", ended
    assert (tmp_path / "once").exists()


def test_hosts_that_cannot_reach_one_another_end_the_job(hosts: Hosts) -> None:
    """The launcher reaches both, so neither is lost; what fails is no process, and the job says so."""
    network = hosts.network
    with ElasticJob(hosts, "-np 3 -H host1:1,host2:1,host3:1 --min-np 1", steps=10, until_size=99) as job:
        job.until(lambda: job.steps(step=5))
        network.drop(network[2], network[3])
        network.drop(network[3], network[2])
        try:
            ended = job.end()
        finally:
            network.pass_all()
        assert ended.code == 1
        assert "3 epochs of the same ranks have failed in a row" in ended.err[-1], ended.err
        assert "could not connect to the other ranks: Rank " in ended.err[-1], ended.err
        assert "(host2) does not answer rank 2 (host3)" in ended.err[-1], ended.err


def test_a_job_does_not_wait_for_a_host_that_is_being_called_when_it_ends(hosts: Hosts, tmp_path: Path) -> None:
    named, script = tmp_path / "hosts", tmp_path / "find.sh"
    named.write_text("host1:1\nhost2:1\n")
    script.write_text(f"#!/bin/sh\ncat {named}\n")
    script.chmod(0o755)
    network = hosts.network
    network.cut(network[3])
    try:
        options = f"-np 2 --min-np 1 --host-discovery-script {script}"
        with ElasticJob(hosts, options, steps=100, pause_s=0.05) as job:
            job.until(lambda: job.steps(step=5))
            named.write_text("host1:1\nhost2:1\nhost3:2\n")
            job.until(lambda: [line for line in job.journal() if line.get("host") == "host3"])
            job.until(lambda: len(job.events("end")) == 2)
            began_s = time.monotonic()
            job.check_end(job.end(), 2)
            assert time.monotonic() - began_s < 8.0
    finally:
        network.join(network[3])
