"""Elastic jobs on one machine: ranks die, come and go, and the training ends with the state of one that had no faults.

Who dies in which phase, and how, is varied in tests/chaos."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from jobs import Ended, Job, Place, python
from jobs.traces import Trace

import horovod

TRAINING = Path(__file__).parent / "workers" / "training.py"


@pytest.fixture
def place() -> Iterator[Place]:
    with Place() as found:
        yield found


def start(
    place: Place, options: str, faults: Sequence[Any] = (), path: str = os.environ["PATH"], **variables: object
) -> Job:
    told = {f"TEST_{name.upper()}": str(value) for name, value in variables.items()}
    job = Job(place, {"PATH": path, "TEST_FAULTS": json.dumps(faults), **told})
    job.start([*python("-m", "horovod.runner"), *options.split(), *python(TRAINING)])
    return job


def check_end(ended: Ended, size: int) -> None:
    """All ranks that were there at the end hold the state of a training without faults."""
    assert ended.code == 0, str(ended)
    last = ended.of("end")
    assert [event["size"] for event in last] == [size] * size, str(ended)
    assert sorted(event["rank"] for event in last) == list(range(size)), str(ended)
    assert all(event["right"] for event in last), str(ended)
    assert len({event["hash"] for event in last}) == 1, str(ended)


def journal(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_ranks_are_killed_one_after_the_other_and_replaced(place: Place, tmp_path: Path) -> None:
    faults = [[3, "first", "kill"], [9, "last", "kill"], [14, "middle", "kill"]]
    log = tmp_path / "log"
    job = start(place, f"-np 4 --min-np 1 --elastic-log {log}", faults, until_size=4, steps=40)
    ended = job.end(leftovers=True)
    assert len(ended.of("fault")) == 3, str(ended)
    check_end(ended, ended.of("end")[0]["size"])
    assert ended.leftovers == []
    # Survivors are the same processes, and repeat no step that was committed.
    survivors = {event["pid"] for event in ended.of("epoch") if event["epoch"] == 0}
    assert len(survivors & {event["pid"] for event in ended.of("epoch") if event["epoch"] == 1}) == 3, str(ended)
    again = [event for event in ended.of("epoch") if event["epoch"] == 1]
    assert {event["step"] for event in again} == {3}, str(ended)
    places = [line for line in journal(log) if line["event"] == "place"]
    assert [line["epoch"] for line in places] == list(range(len(places)))
    assert "rank 0 was killed by signal 9" in places[1]["why"]
    assert "horovodrun: epoch 1: 3 ranks on localhost:3, since rank 0 was killed by signal 9." in ended.stderr


def test_the_trace_goes_on_in_the_next_epoch(place: Place, tmp_path: Path) -> None:
    """Also where the rank that wrote it was killed: the next rank 0 is another process."""
    path = tmp_path / "t.json"
    path.write_text("of another job")
    options = f"-np 3 --min-np 1 --timeline-filename {path}"
    job = start(place, options, [[100, "first", "kill"]], until_size=3, steps=110)  # what was sent last is lost
    ended = job.end(leftovers=True)
    check_end(ended, ended.of("end")[0]["size"])
    trace = Trace(path)
    begins = {(event["name"], event["pid"]): event["ts"] for event in trace.events if event["ph"] == "i"}
    assert {("epoch 0 begins", 0), ("epoch 1 begins", 0), ("epoch 1 begins", 1)} <= set(begins), begins
    again_us = begins["epoch 1 begins", 0]
    times = [event["ts"] for event in trace.of(1) if event["ph"] == "X"]
    # Rank 1 may have begun before rank 0.
    assert begins["epoch 0 begins", 0] < again_us and min(times) < again_us < max(times)


def test_survivors_keep_their_local_ranks_and_a_new_rank_gets_a_free_one(place: Place) -> None:
    job = start(place, "-np 3 --min-np 1", [[3, "first", "kill"]], steps=10, until_size=99)
    job.until(lambda: [event for event in job.events("epoch") if event["epoch"] and event["size"] == 3], 3)
    job.process.send_signal(signal.SIGTERM)
    ended = job.end()
    whole = [event for event in ended.of("epoch") if event["size"] == 3]
    first = {event["pid"]: event["local_rank"] for event in whole if event["epoch"] == 0}
    later = {event["pid"]: event["local_rank"] for event in whole if event["epoch"]}
    assert sorted(later.values()) == [0, 1, 2]
    assert len(first.keys() & later.keys()) == 2 and all(later.get(pid, at) == at for pid, at in first.items())


def test_ranks_come_and_go_with_the_hosts_and_nothing_is_done_twice(place: Place, tmp_path: Path) -> None:
    hosts, script = tmp_path / "hosts", tmp_path / "find.sh"
    hosts.write_text("localhost:2\n")
    script.write_text(f"#!/bin/sh\ncat {hosts}\n")
    script.chmod(0o755)
    job = start(place, f"-np 2 --min-np 1 --max-np 3 --host-discovery-script {script}", steps=10, until_size=99)
    job.await_events("step", 4)
    hosts.write_text("localhost:8\n")
    job.until(lambda: [event for event in job.events("step") if event["size"] == 3], 3)
    hosts.write_text("localhost:1\n")
    job.until(lambda: [event for event in job.events("step") if event["size"] == 1], 3)
    hosts.write_text("this is no host\n")
    job.await_text("does not print a list of hosts")
    steps = [event["step"] for event in job.events("step") if event["rank"] == 0]
    assert steps == sorted(set(steps)), "a graceful change needs no rollback"
    job.process.send_signal(signal.SIGTERM)
    ended = job.end(leftovers=True)
    assert ended.code == 128 + signal.SIGTERM
    assert ended.leftovers == []


@pytest.mark.parametrize(
    ("what", "code", "words"),
    [
        ("raise", 1, "ValueError: a mistake of the program"),
        ("mismatch", 1, "MismatchError"),
        ("exit", 3, "exited with code 3"),
    ],
)
def test_a_mistake_of_the_program_ends_the_job(place: Place, what: str, code: int, words: str) -> None:
    ended = start(place, "-np 2 --min-np 1", [[3, "last", what]]).end(leftovers=True)
    assert ended.code == code, str(ended)
    assert words in ended.output, str(ended)
    assert max(event["epoch"] for event in ended.of("epoch")) == 0, str(ended)
    assert ended.leftovers == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            "--min-np 2 --blacklist-cooldown-range 60 60 --elastic-timeout 1",
            "2 ranks are needed, but after 1 s (--elastic-timeout) there is 1: rank 1 was killed by signal 9",
        ),
        ("--min-np 1 --reset-limit 0", "reset 0 times, which is the limit (--reset-limit): rank 1 was killed"),
    ],
)
def test_a_job_that_may_not_go_on_says_why(place: Place, options: str, words: str) -> None:
    ended = start(place, f"-np 2 {options}", [[3, "last", "kill"]]).end(leftovers=True)
    assert ended.code == 1, str(ended)
    assert words in ended.stderr, str(ended)
    assert ended.leftovers == []


def elastic_rank() -> tuple[int, int, str]:
    import horovod.numpy as hvd

    hvd.init()
    return hvd.rank(), hvd.size(), os.environ["HOROVOD_ELASTIC"]


def test_a_function_gives_the_results_of_the_least_ranks() -> None:
    assert horovod.run(elastic_rank, num_proc=3, min_num_proc=2) == [(0, 3, "1"), (1, 3, "1")]


def test_what_was_written_outlives_all_ranks(place: Place, tmp_path: Path) -> None:
    faults = [[15, "first", "kill"], [15, "last", "kill"]]
    key = tmp_path / "key"
    key.write_text("a secret of the test")
    key.chmod(0o600)
    folder = tmp_path / "commits"
    kept = f"--elastic-commit-interval 0.05 --elastic-commit-keep 3 --elastic-commit-key-file {key}"
    ended = start(place, f"-np 2 --min-np 1 --max-restarts 1 --elastic-commit-dir {folder} {kept}", faults).end()
    check_end(ended, 2)
    assert len(ended.of("fault")) == 2, str(ended)
    begun = [event["step"] for event in ended.of("epoch")]
    assert begun[:2] == [0, 0] and 0 < begun[2] == begun[3] <= 15, str(ended)
    assert 1 <= len(list(folder.iterdir())) <= 3


def test_a_second_job_in_the_folder_is_refused_while_the_first_one_lives(place: Place, tmp_path: Path) -> None:
    folder = tmp_path / "commits"
    options = f"-np 2 --min-np 1 --elastic-commit-dir {folder} --elastic-commit-interval 0.05"
    first = start(place, options, [[3, "first", "kill"]], until_size=99)
    first.until(lambda: [event for event in first.events("step") if event["epoch"] >= 1], 5)
    heir = next(event["pid"] for event in first.events("epoch") if event["epoch"] == 1 and event["rank"] == 0)
    with Place() as another:
        second = start(another, options).end()
        assert second.code == 2 and second.of("epoch") == [], str(second)
        assert f"the commits in {folder} belong to another job that is running: process {heir} on" in second.stderr
    first.kill()
    with Place() as another:
        after = start(another, f"{options} --max-restarts 1", steps=5).end()
    assert after.code == 0 and after.of("epoch")[0]["step"] > 0, str(after)
    assert "which an earlier job wrote: process" in after.stderr, str(after)
    assert [path.name for path in folder.iterdir() if not path.name.startswith("commit-")] == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("exit 7", "failed with code 7: it printed nothing"),
        ("echo localhost", "has no number of slots"),
    ],
)
def test_a_discovery_script_that_fails_at_the_start(place: Place, tmp_path: Path, text: str, words: str) -> None:
    script = tmp_path / "find.sh"
    script.write_text(f"#!/bin/sh\n{text}\n")
    script.chmod(0o755)
    ended = start(place, f"-np 1 --host-discovery-script {script}").end()
    assert ended.code == 2, str(ended)
    assert words in ended.stderr, str(ended)


def test_other_hosts_without_ssh_are_refused_before_anything_is_started(place: Place, tmp_path: Path) -> None:
    script = tmp_path / "find.sh"
    script.write_text("#!/bin/sh\necho localhost:2\necho one.invalid:1\necho two.invalid:1\n")
    script.chmod(0o755)
    ended = start(place, f"-np 2 --host-discovery-script {script}", path="/nowhere").end()
    assert ended.code == 2, str(ended)
    words = "names hosts that cannot be reached: one.invalid, two.invalid are not this machine, and there is no program"
    assert words in ended.stderr and "install OpenSSH's client" in ended.stderr, str(ended)
    assert ended.of("epoch") == []


def test_a_host_that_comes_later_and_needs_ssh_is_reported_and_the_job_goes_on(place: Place, tmp_path: Path) -> None:
    script, more = tmp_path / "find.sh", tmp_path / "more"
    script.write_text(f"#!/bin/sh\necho localhost:2\ntest -e {more} && echo one.invalid:1\nexit 0\n")
    script.chmod(0o755)
    job = start(place, f"-np 2 --host-discovery-script {script}", path="/nowhere", steps=60, pause_s=0.05)
    job.await_events("step", 4)
    more.touch()
    ended = job.end(leftovers=True)
    check_end(ended, 2)
    assert "one.invalid cannot be used: one.invalid is not this machine, and there is no program 'ssh'" in ended.stderr
    assert " It is given up for good." in ended.stderr
    assert "Errno" not in ended.stderr and ended.leftovers == []


@pytest.mark.parametrize(
    ("ssh", "why"),
    [
        ("exec sleep 100", "it has not answered within 3 s (--start-timeout)"),
        ("echo 'connect to host: Connection refused' >&2; exit 255", "nothing listens there on the ssh port"),
    ],
)
def test_a_host_that_is_late_is_called_again(place: Place, tmp_path: Path, ssh: str, why: str) -> None:
    """It may only be starting: where a host that has failed is given up for good, this one pauses."""
    script, more, program, log = (tmp_path / name for name in ("find.sh", "more", "ssh", "log"))
    script.write_text(f"#!/bin/sh\necho localhost:1\ntest -e {more} && echo one.invalid:1\nexit 0\n")
    program.write_text(f"#!/bin/sh\n{ssh}\n")
    for each in (script, program):
        each.chmod(0o755)
    options = f"-np 1 --start-timeout 3 --host-discovery-script {script} --elastic-log {log}"
    job = start(place, options, path=f"{tmp_path}:{os.environ['PATH']}", steps=10, until_size=99)
    job.await_events("step", 4)
    more.touch()
    job.await_text("one.invalid cannot be used: ")
    job.process.send_signal(signal.SIGTERM)
    ended = job.end(leftovers=True)
    assert f"one.invalid cannot be used: {why}" in ended.stderr and "It is given up for 10 s." in ended.stderr
    (held,) = [line for line in journal(log) if line["event"] == "held"]
    assert (held["host"], held["for_s"]) == ("one.invalid", 10.0)
    assert ended.leftovers == []


def test_a_job_that_ends_while_the_script_runs(place: Place, tmp_path: Path) -> None:
    script = tmp_path / "find.sh"
    script.write_text(f"#!/bin/sh\ntest -e {tmp_path}/ran && sleep 60\ntouch {tmp_path}/ran\necho localhost:1\n")
    script.chmod(0o755)
    ended = start(place, f"-np 1 --host-discovery-script {script}", steps=200).end(leftovers=True)
    check_end(ended, 1)
    assert (ended.stderr, ended.leftovers) == ("", [])


def test_one_that_never_names_enough(place: Place, tmp_path: Path) -> None:
    script = tmp_path / "find.sh"
    script.write_text("#!/bin/sh\necho localhost\n")
    script.chmod(0o755)
    before = time.monotonic()
    options = f"-np 2 --slots-per-host 1 --elastic-timeout 1 --host-discovery-script {script}"
    ended = start(place, options).end()
    assert ended.code == 1, str(ended)
    assert "has not named that many usable ones within 1 s (--elastic-timeout)" in ended.stderr
    assert ended.ended_s - before > 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("-np 2 --min-np 3", "--min-np is 3, more than the 2 processes to begin with"),
        ("-np 2 --min-np 1 --max-np 1", "--max-np is 1, less than the 2 processes"),
        ("-np 2 --min-np 1 --blacklist-cooldown-range 1 4000", "from 1 to 3600"),
        ("-np 2 --min-np 1 --mpi", "Elastic jobs cannot be started by mpirun"),
        ("-np 2 --min-np 1 --stdin-rank 0", "--stdin-rank does not work in an elastic job"),
    ],
)
def test_what_cannot_be_is_refused(place: Place, options: str, words: str) -> None:
    ended = start(place, options).end()
    assert ended.code == 2, str(ended)
    assert words in ended.stderr, str(ended)
