"""Inside a Slurm allocation: what is a step and what is not, several steps at once, other launchers in it."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import pytest
from jobs import Place

from .conftest import present
from .launched import Job, assert_worked, job_of, worker
from .slurm import Cluster, this_machine

TRAINING = Path(__file__).parents[1] / "integration" / "elastic" / "workers" / "training.py"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(150)]


def test_an_interactive_allocation_without_srun_is_one_process(cluster: Cluster, place: Place) -> None:
    job = Job(place, environ=cluster.environ)
    job.start(["salloc", "-n", "2", *worker("work")])
    assert_worked(job.end(), 1, "single process")


def test_a_batch_script_without_srun_is_one_process(cluster: Cluster, place: Place) -> None:
    job = Job(place, environ=cluster.environ)
    job.start(["sbatch", "--wait", "-n", "2", "-o", str(job.reports / "batch"), "--wrap", shlex.join(worker("work"))])
    assert_worked(job.end(), 1, "single process")


def test_two_steps_of_a_batch_job_at_the_same_time_do_not_mix(cluster: Cluster, place: Place) -> None:
    both = os.pathsep.join(str(place.folder / name) for name in ("one", "two"))
    environ = {**cluster.environ, "LAUNCHED_TOGETHER": "4", "LAUNCHED_TOGETHER_IN": both}
    jobs = [Job(place, name, environ) for name in ("one", "two")]
    rank = shlex.join(worker("work"))
    steps = [
        f"LAUNCHED_TOKEN={token} TEST_REPORTS={job.reports} srun --exact -n 2 {rank} & p{token}=$!"
        for token, job in enumerate(jobs, 1)
    ]
    script = "\n".join([*steps, "wait $p1 && wait $p2"])
    jobs[0].start(["sbatch", "--wait", "-n", "4", "-o", str(jobs[0].reports / "batch"), "--wrap", script])
    ended = jobs[0].end()
    assert_worked(ended, 2, "srun")
    ended.events = jobs[1].events()
    assert_worked(ended, 2, "srun")


def test_srun_with_pmi2_is_srun(cluster: Cluster, place: Place) -> None:
    job = Job(place, environ=cluster.environ)
    job.start(["srun", "--mpi=pmi2", "-n", "2", *worker("work")])
    assert_worked(job.end(), 2, "srun")


@pytest.mark.parametrize("name", ["openmpi5", "openmpi4", "mpich", "intel"])
def test_mpirun_in_an_allocation_is_mpirun(
    name: str, cluster: Cluster, place: Place, request: pytest.FixtureRequest
) -> None:
    starter = present(name, request)
    job = job_of(starter, place, environ=cluster.environ)
    job.start(["salloc", "-n", "2", *starter.command(2, worker("work"))])
    assert_worked(job.end(), 2, starter.name)


def test_torchrun_in_a_step_of_one_task_is_torchrun(
    cluster: Cluster, place: Place, request: pytest.FixtureRequest
) -> None:
    starter = present("torchrun", request)
    job = job_of(starter, place, environ=cluster.environ)
    job.start(["srun", "-n", "1", *starter.command(2, worker("work"))])
    assert_worked(job.end(), 2, "torchrun")


def allocated(words: list[str], part: str = "work") -> list[str]:
    """horovodrun, as it is called in an allocation."""
    return [sys.executable, "-m", "horovod.runner", "--verbose", *words, *worker(part)]


@pytest.mark.parametrize(("words", "size"), [([], 3), (["-np", "2"], 2), (["-np", "1", "-H", "localhost"], 1)])
def test_horovodrun_in_an_interactive_allocation_takes_it(
    words: list[str], size: int, cluster: Cluster, place: Place
) -> None:
    job = Job(place, environ=cluster.environ)
    job.start(["salloc", "-n", "3", *allocated(words)])
    ended = job.end()
    assert_worked(ended, size, "horovodrun")
    assert (f"{size} ranks by Slurm's allocation" in ended.stderr) == ("-H" not in words), str(ended)


def test_horovodrun_in_a_batch_script_takes_the_allocation(cluster: Cluster, place: Place) -> None:
    job = Job(place, environ=cluster.environ)
    batch = job.reports / "batch"
    job.start(["sbatch", "--wait", "-N", "1", "-n", "2", "-o", str(batch), "--wrap", shlex.join(allocated([]))])
    ended = job.end()
    assert_worked(ended, 2, "horovodrun")
    assert "2 ranks by Slurm's allocation" in batch.read_text(), batch.read_text()


def test_several_horovodruns_of_one_step_are_refused(cluster: Cluster, place: Place) -> None:
    job = Job(place, environ=cluster.environ)
    job.start(["srun", "-n", "2", *allocated([])])
    ended = job.end()
    assert ended.code == 2, str(ended)
    assert "srun has started horovodrun 2 times, once per task" in ended.stderr, str(ended)
    assert ended.of("worked") == [], str(ended)


def test_a_step_of_another_size_than_promised_stops_in_init(cluster: Cluster, place: Place) -> None:
    job = Job(place, environ={**cluster.environ, "HOROVOD_EXPECTED_SIZE": "4"})
    job.start(["srun", "-n", "2", *worker("work")])
    ended = job.end()
    assert ended.code != 0, str(ended)
    assert "HOROVOD_EXPECTED_SIZE=4 was promised, but srun has started 2 ranks on 1 host" in ended.stderr, str(ended)
    assert ended.of("worked") == [], str(ended)


@pytest.mark.parametrize("name", ["openmpi5", "openmpi4", "mpich", "intel"])
def test_horovodrun_takes_the_allocation_for_mpirun_too(
    name: str, cluster: Cluster, place: Place, request: pytest.FixtureRequest
) -> None:
    starter = present(name, request)
    job = job_of(starter, place, environ=cluster.environ)
    job.start(["salloc", "-n", "2", *allocated(["--mpi"])])
    assert_worked(job.end(), 2, starter.name)


def test_an_interactive_step_takes_more_ranks_than_its_task(cluster: Cluster, place: Place) -> None:
    job = Job(place, environ=cluster.environ)
    job.start(["srun", "-n", "1", *allocated(["-np", "2"])])
    ended = job.end()
    assert_worked(ended, 2, "horovodrun")
    assert "2 ranks share Slurm's allocation of 1 slot on " in ended.stderr, str(ended)


REQUEUED = {
    "by hand": ["requeue {job}"],
    "with its node": ["update nodename={node} state=down reason=test", "update nodename={node} state=resume"],
}


@pytest.mark.parametrize("how", REQUEUED)
def test_an_elastic_job_that_is_queued_again_goes_on_from_its_last_durable_commit(
    how: str, cluster: Cluster, place: Place
) -> None:
    job = Job(place, environ={**cluster.environ, "TEST_STEPS": "40", "TEST_PAUSE_S": "0.1"})
    kept = f"--elastic-commit-dir {place.folder / 'commits'} --elastic-commit-interval 0.2"
    words = [sys.executable, "-m", "horovod.runner", "--min-np", "1", *kept.split(), sys.executable, str(TRAINING)]
    output = ["--open-mode=append", "-o", str(job.reports / "batch")]
    submit = shlex.join(["sbatch", "--requeue", "-n", "2", *output, "--wrap", shlex.join(words)])
    # sbatch --wait takes the first end for the last.
    job.start(["sh", "-c", f"{submit} && sleep 1 && while squeue --noheader | grep -q .; do sleep 0.2; done"])
    job.await_events("step", 30)
    number = cluster.ask("squeue", "--noheader", "--format=%A")
    for line in REQUEUED[how]:
        cluster.ask("scontrol", *line.format(job=number, node=this_machine().name).split())
    job.until(lambda: [number] if cluster.ask("squeue", "--noheader", "--format=%t") == "PD" else [], 1)
    before = len(job.events("epoch"))
    ended = job.end()
    text = f"{ended}\n{(job.reports / 'batch').read_text()}"
    told = cluster.ask("scontrol", "show", "job", number)
    assert "JobState=COMPLETED" in told, told + text
    begun = [event["step"] for event in ended.of("epoch")[before:]]
    assert begun and min(begun) >= 5, text
    assert [(event["size"], event["step"], event["right"]) for event in ended.of("end")] == [(2, 40, True)] * 2, text
    assert ended.leftovers == [], text
