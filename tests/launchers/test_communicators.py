"""Communicators of mpi4py as the job and as process sets, under real MPIs on this host."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from jobs import ROOT, Ended, Place

from .conftest import present
from .launched import by_rank, job_of
from .starters import ENVS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(150)]

WORKER = Path(__file__).with_name("communicator_worker.py")


@pytest.fixture(params=["openmpi5", "openmpi4", "mpich"])
def run(request: pytest.FixtureRequest, place: Place) -> Callable[[str], Ended]:
    """Runs a part of the worker with four ranks."""
    starter = present(request.param, request)
    packages = list((ENVS / "mpi4py").glob("lib/python3*/site-packages"))
    if not packages:
        pytest.skip("mpi4py is not installed; `make launchers` installs it.")
    path = os.pathsep.join([str(ROOT / "python"), str(ROOT / "tests"), str(packages[0])])
    environ = {"LD_LIBRARY_PATH": str(ENVS / starter.id / "lib"), "PYTHONPATH": path}

    def start(part: str) -> Ended:
        job = job_of(starter, place, environ=environ)
        job.start(starter.command(4, [sys.executable, str(WORKER), part]))
        ended = job.end()
        assert ended.code == 0 and ended.leftovers == [], str(ended)
        return ended

    return start


def test_each_half_of_a_split_is_a_process_set(run: Callable[[str], Ended]) -> None:
    worked = by_rank(run("split").of("worked"))
    assert [event["ranks"] for event in worked] == [[0, 2], [1, 3]] * 2
    assert [event["id"] for event in worked] == [1, 2] * 2
    assert [event["total"] for event in worked] == [2.0, 4.0] * 2


def test_a_sub_communicator_is_a_job_in_its_order(run: Callable[[str], Ended]) -> None:
    ended = run("sub_world")
    worked = by_rank(ended.of("worked"))
    assert [(each["rank"], each["comm_rank"], each["size"], each["total"]) for each in worked] == [
        (0, 0, 2, 4.0),
        (1, 1, 2, 4.0),
    ]
    refused = ended.of("refused")
    assert len(refused) == 2 and all("MPI.COMM_NULL" in each["message"] for each in refused)


def test_a_set_is_added_by_a_communicator(run: Callable[[str], Ended]) -> None:
    worked = by_rank(run("added").of("worked"))
    assert [event["ranks"] for event in worked] == [[0, 1]] * 4
    assert [event["included"] for event in worked] == [True, True, False, False]


def test_ranks_that_mpi_does_not_know_of_are_an_error(place: Place, request: pytest.FixtureRequest) -> None:
    starter = present("mpich", request)
    numbers = {"STEP_ID": "0", "PROCID": "0", "LOCALID": "0", "NODEID": "0", "STEP_NUM_TASKS": "2"}
    environ = {**{f"SLURM_{name}": value for name, value in numbers.items()}, "SLURM_STEP_TASKS_PER_NODE": "1(x2)"}
    library = {"HOROVOD_MPI_LIBRARY": str(ENVS / starter.id / "lib" / "libmpi.so.12")}
    job = job_of(starter, place, environ={**environ, **library})
    job.start([sys.executable, "-c", "import horovod.numpy as hvd; hvd.init()"])
    ended = job.end()
    assert ended.code == 1
    assert "srun says that this is rank 0 of 2, but MPICH 5.0.2" in str(ended), str(ended)
    assert "says rank 0 of 1: the ranks were started by one MPI" in str(ended), str(ended)
