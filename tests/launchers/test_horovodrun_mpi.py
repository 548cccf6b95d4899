"""`horovodrun --mpi` and `horovod.run(use_mpi=True)` with each mpirun that is there."""

from __future__ import annotations

import os
import signal
import stat
import sys

import pytest
from jobs import Place

from .conftest import present
from .launched import Job, assert_worked, job_of, worker
from .starters import Starter

pytestmark = [pytest.mark.slow, pytest.mark.timeout(150)]

MPIS = ("openmpi5", "openmpi4", "mpich", "intel")
PREFIXES = {"openmpi5": "[0]<stdout>: ", "openmpi4": "[1,0]<stdout>:", "mpich": "[0] ", "intel": "[0] "}
FUNCTION = """
import sys
import horovod, horovod.numpy as hvd
def work(wrong):
    hvd.init()
    if wrong and hvd.rank() == 1:
        raise ValueError("bad batch")
    return hvd.rank(), hvd.allgather_object(hvd.local_rank())
if __name__ == "__main__":
    print("results", horovod.run(work, (len(sys.argv) > 1,), num_proc=2, use_mpi=True))
"""


@pytest.fixture(params=MPIS)
def mpi(request: pytest.FixtureRequest) -> Starter:
    """Each MPI in turn."""
    return present(request.param, request)


def line(*words: str) -> list[str]:
    return [sys.executable, "-m", "horovod.runner", "--mpi", *words]


def test_ranks_work(mpi: Starter, place: Place) -> None:
    job = job_of(mpi, place)
    job.start(line("-np", "3", "--cycle-time-ms", "2", *worker("work")))
    ended = job.end()
    assert_worked(ended, 3, mpi.name)
    assert all(event["given"].get("cycle_time_ms") == "2.0" for event in ended.of("worked")), str(ended)
    assert all(event["given"].get("expected_size") == "3" for event in ended.of("worked")), str(ended)


def test_the_exit_code_is_that_of_the_rank_and_output_has_its_number(mpi: Starter, place: Place) -> None:
    job = job_of(mpi, place)
    job.start(line("-np", "1", "--verbose", "sh", "-c", "echo said; exit 7"))
    ended = job.end()
    assert ended.code == 7, str(ended)
    if mpi.id != "mpich":  # which drops what a rank has written just before it fails
        assert f"{PREFIXES[mpi.id]}said" in ended.stdout, str(ended)
    assert f"horovodrun: mpirun ({mpi.name}" in ended.stderr, str(ended)
    assert "ended with code 7" in ended.stderr, str(ended)
    assert "rank 0 started with pid" not in ended.stderr, str(ended)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all(mpi: Starter, number: signal.Signals, place: Place) -> None:
    job = job_of(mpi, place)
    job.start(line("-np", "2", "sh", "-c", "echo running; exec sleep 60"))
    job.until(lambda: ["all"] if job.output.count("running") == 2 else [])
    job.signal(job.process.pid, number)
    ended = job.end(patience_s=20)
    assert ended.code == 128 + number, str(ended)
    assert f"stopped by {number.name}; no rank is left." in ended.stderr, str(ended)
    assert ended.leftovers == [], str(ended)


def test_a_killed_launcher_leaves_nothing(mpi: Starter, place: Place) -> None:
    job = job_of(mpi, place)
    job.start(line("-np", "2", "sh", "-c", "echo running; exec sleep 60"))
    job.until(lambda: ["all"] if job.output.count("running") == 2 else [])
    job.signal(job.process.pid, signal.SIGKILL)
    ended = job.end(patience_s=20)
    assert ended.code == -signal.SIGKILL, str(ended)
    # A mpirun that is killed leaves its own folder; processes and files of ours are gone.
    assert [text for text in ended.leftovers if "/ompi." not in text] == [], str(ended)


def test_variables_reach_the_ranks_and_no_command_line(mpi: Starter, place: Place) -> None:
    job = job_of(mpi, place, environ={"MY_TOKEN": "very secret"})
    job.start(line("-np", "2", "sh", "-c", 'echo "got $MY_TOKEN"; exec sleep 60'))
    job.until(lambda: ["all"] if job.output.count("got very secret") == 2 else [])
    assert not [words for words in job.processes().values() if "very secret" in words]
    job.signal(job.process.pid, signal.SIGTERM)
    job.end(patience_s=20)


@pytest.mark.parametrize("name", ["openmpi4", "openmpi5"])
def test_words_of_the_user_reach_mpirun(name: str, place: Place, request: pytest.FixtureRequest) -> None:
    job = job_of(present(name, request), place)
    job.start(line("-np", "2", "--mpi-args", "-x ONLY_HERE=yes", "sh", "-c", "echo it is $ONLY_HERE"))
    ended = job.end()
    assert ended.code == 0 and ended.stdout.count("it is yes") == 2, str(ended)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="Not here: one core is bound to itself in any case.")
@pytest.mark.parametrize("name", ["openmpi4", "openmpi5"])
def test_binding_words_bind_the_ranks(name: str, place: Place, request: pytest.FixtureRequest) -> None:
    mpi = present(name, request)
    count = [sys.executable, "-c", "import os; print(f'cores {len(os.sched_getaffinity(0))}')"]
    bound, free = job_of(mpi, place, "bound"), job_of(mpi, place, "free")
    bound.start(line("-np", "2", "--binding-args", "--bind-to core --map-by core", *count))
    assert bound.end().stdout.count("cores 1") == 2
    free.start(line("-np", "2", *count))
    assert free.end().stdout.count(f"cores {len(os.sched_getaffinity(0))}") == 2


def test_a_function_runs_and_its_results_come_back(mpi: Starter, place: Place) -> None:
    (place.folder / "function.py").write_text(FUNCTION)
    job = job_of(mpi, place)
    job.start([sys.executable, str(place.folder / "function.py")])
    ended = job.end()
    assert ended.code == 0, str(ended)
    results = [word for word in ended.stdout.splitlines() if word.startswith("results ")]
    assert results in (["results [(0, [0, 1]), (1, [0, 1])]"], ["results [(0, [1, 0]), (1, [1, 0])]"]), str(ended)
    assert ended.leftovers == [], str(ended)


def test_an_exception_in_a_function_is_reported_with_its_rank(mpi: Starter, place: Place) -> None:
    (place.folder / "function.py").write_text(FUNCTION)
    job = job_of(mpi, place, environ={})
    job.start([sys.executable, str(place.folder / "function.py"), "wrong"])
    ended = job.end()
    assert ended.code == 1, str(ended)
    if mpi.others_may_speak:
        assert "The exception of rank 1:" in ended.stderr and "ValueError: bad batch" in ended.stderr, str(ended)


def test_a_failed_job_is_started_again(place: Place, request: pytest.FixtureRequest) -> None:
    mpi = present("openmpi5", request)
    job = job_of(mpi, place)
    job.start(line("-np", "2", "--max-restarts", "1", "sh", "-c", 'test "$HOROVOD_RESTART_COUNT" = 1'))
    ended = job.end()
    assert ended.code == 0, str(ended)
    assert "restart 1 of 1" in ended.stderr, str(ended)


def test_ranks_that_mpirun_starts_otherwise_than_asked_stop_in_init(place: Place) -> None:
    """A mpirun that starts its program once and tells nobody a rank, as one of another MPI does."""
    program = place.folder / "mpirun"
    program.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo "mpirun (Open MPI) 4.1.8" && exit\n'
        f'while [ "$1" != {sys.executable} ]; do shift; done; exec "$@"\n'
    )
    program.chmod(stat.S_IRWXU)
    job = Job(place, environ={"PATH": os.pathsep.join([str(place.folder), "/bin", "/usr/bin"])})
    job.start(line("-np", "2", *worker("work")))
    ended = job.end()
    assert ended.code == 1, str(ended)
    assert "HOROVOD_EXPECTED_SIZE=2 and HOROVOD_EXPECTED_HOSTS=1 was promised, but no launcher has" in ended.output
    assert ended.of("worked") == [], str(ended)
