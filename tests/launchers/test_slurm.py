"""Inside a Slurm allocation: what is a step and what is not, several steps at once, other launchers in it."""

from __future__ import annotations

import os
import shlex
import sys

import pytest
from jobs import Place

from .conftest import present
from .launched import Job, assert_worked, job_of, worker
from .slurm import Cluster

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
