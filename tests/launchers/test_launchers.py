"""What `hvd.init()` promises under every launcher of others.

The ranks find one another, jobs do not mix, deaths are noticed, nothing stays behind.
"""

from __future__ import annotations

import json
import os
import shlex

import pytest
from jobs import Place

from .conftest import present
from .launched import Job, assert_worked, by_rank, job_of, worker
from .starters import Starter

pytestmark = [pytest.mark.slow, pytest.mark.timeout(150)]

DETECTION_S = 1.0


def test_two_ranks_work_and_a_child_that_inits_is_refused(starter: Starter, place: Place) -> None:
    job = job_of(starter, place, environ={"LAUNCHED_CHILD": "1"})
    job.start(starter.command(2, worker("work")))
    ended = job.end()
    assert_worked(ended, 2, starter.name)
    assert "already taken by" in by_rank(ended.of("worked"))[0]["child"], str(ended)


def test_four_ranks_each_started_by_a_shell_work(starter: Starter, place: Place) -> None:
    job = job_of(starter, place)
    job.start(starter.command(4, worker("work"), wrapped=True))
    assert_worked(job.end(), 4, starter.name)


def test_two_jobs_at_the_same_time_do_not_mix(starter: Starter, place: Place) -> None:
    both = os.pathsep.join(str(place.folder / name) for name in ("one", "two"))
    jobs: list[Job] = []
    for token, name in enumerate(("one", "two"), 1):
        environ = {"LAUNCHED_TOKEN": str(token), "LAUNCHED_TOGETHER": "4", "LAUNCHED_TOGETHER_IN": both}
        jobs.append(job_of(starter, place, name, environ))
    for job in jobs:
        job.start(starter.command(2, worker("work")))
    for ended in [job.end() for job in jobs]:
        assert_worked(ended, 2, starter.name)


def test_a_killed_rank_is_noticed_by_the_others(starter: Starter, place: Place) -> None:
    job = job_of(starter, place)
    job.start(starter.command(3, worker("die_between")))
    ended = job.end()
    assert ended.code != 0, str(ended)
    died = ended.of("fault")[0]["at"]
    raised = by_rank(ended.of("raised"))
    if starter.others_may_speak:
        assert [event["rank"] for event in raised] == [0, 2], str(ended)
        assert all("rank 1" in event["message"] for event in raised), str(ended)
        assert max(event["at"] for event in raised) - died < DETECTION_S, str(ended)
    else:
        assert ended.ended_s - died < 2 * DETECTION_S, str(ended)
    assert ended.leftovers == [], str(ended)


def test_a_rank_that_gives_up_is_noticed_by_the_others(starter: Starter, place: Place) -> None:
    job = job_of(starter, place, environ={"LAUNCHED_EXIT": "5"})
    job.start(starter.command(2, worker("die_between")))
    ended = job.end()
    assert ended.code != 0, str(ended)
    raised = by_rank(ended.of("raised"))
    assert [event["rank"] for event in raised] == [0], str(ended)
    assert "rank 1" in raised[0]["message"], str(ended)
    assert raised[0]["at"] - ended.of("fault")[0]["at"] < DETECTION_S, str(ended)
    assert ended.leftovers == [], str(ended)


def test_what_an_exception_on_one_rank_says_reaches_the_others(starter: Starter, place: Place) -> None:
    job = job_of(starter, place, environ={"LAUNCHED_ERROR": "bad batch"})
    job.start(starter.command(2, worker("die_between")))
    ended = job.end()
    assert ended.code != 0, str(ended)
    raised = by_rank(ended.of("raised"))
    if starter.others_may_speak:
        assert [event["rank"] for event in raised] == [0], str(ended)
    assert all("rank 1 ended with ValueError: bad batch" in event["message"] for event in raised), str(ended)
    assert ended.leftovers == [], str(ended)


def test_a_rank_killed_in_init_is_noticed_and_the_next_job_sweeps(starter: Starter, place: Place) -> None:
    job = job_of(starter, place, "first")
    job.start(starter.command(2, worker("die_in_init")))
    ended = job.end()
    assert ended.code != 0, str(ended)
    raised = by_rank(ended.of("raised"))
    if starter.others_may_speak:
        assert [event["rank"] for event in raised] == [0], str(ended)
        assert raised[0]["at"] - ended.of("fault")[0]["at"] < DETECTION_S, str(ended)
        assert ended.leftovers == [], str(ended)
    job = job_of(starter, place, "second")
    job.start(starter.command(2, worker("work")))
    assert_worked(job.end(), 2, starter.name)
    assert list(place.shared[0].rglob("*")) == []


@pytest.mark.parametrize("name", ["openmpi5", "mpich", "intel"])
def test_a_rank_may_start_a_job_of_its_own(name: str, place: Place, request: pytest.FixtureRequest) -> None:
    starter = present(name, request)
    job = job_of(starter, place)
    inner = shlex.join(starter.command(2, worker("work")))
    rank = 'if [ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 0 ]; then ' + inner + "; fi"
    job.start(starter.command(2, ["sh", "-c", rank]))
    assert_worked(job.end(), 2, starter.name)


def test_plain_pmi_gives_the_ranks_of_one_host(place: Place, request: pytest.FixtureRequest) -> None:
    job = job_of(present("mpich", request), place)
    job.start(["mpiexec.gforker", "-n", "2", *worker("work")])
    assert_worked(job.end(), 2, "PMI")


def test_settings_come_from_the_environment(starter: Starter, place: Place) -> None:
    timeline = place.folder / "timeline.json"
    variables = {"HOROVOD_CYCLE_TIME": "1", "HOROVOD_TIMELINE": str(timeline)}
    job = job_of(starter, place, environ={} if starter.variables else variables)
    job.start(starter.command(2, worker("work"), variables))
    ended = job.end()
    assert_worked(ended, 2, starter.name)
    for event in ended.of("worked"):
        assert event["given"] == {"cycle_time_ms": "1.0", "timeline_path": str(timeline)}, str(ended)
    names = {entry.get("name") for entry in json.loads(timeline.read_text())}
    assert "NEGOTIATE_ALLREDUCE" in names
