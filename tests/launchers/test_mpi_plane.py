"""HOROVOD_CPU_OPERATIONS=mpi under real MPIs on this host: MPI moves the tensors, or all ranks know why not."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Optional

import pytest
from jobs import ROOT, Ended, Place

from .conftest import present
from .launched import by_rank, job_of
from .starters import ENVS, Starter

pytestmark = [pytest.mark.slow, pytest.mark.timeout(150)]

WORKER = Path(__file__).with_name("mpi_plane_worker.py")
CONTRACT = ROOT / "tests" / "contract" / "worker.py"
ABI = {"HOROVOD_MPI_LIBRARY": str(ENVS / "mpich" / "lib" / "libmpi_abi.so.1")}
# Name -> launcher, variables of its ranks: every library that the wheels have.
LIBRARIES: dict[str, tuple[str, Mapping[str, str]]] = {
    "openmpi5": ("openmpi5", {}),
    "openmpi4": ("openmpi4", {}),
    "mpich": ("mpich", {}),
    "intel": ("intel", {}),
    "standard": ("mpich", ABI),
}
DETECTION_S = 1.0


class Run:
    """Jobs of the worker with one of the libraries."""

    def __init__(self, name: str, place: Place, request: pytest.FixtureRequest) -> None:
        launcher, self.environ = LIBRARIES[name]
        self.starter: Starter = present(launcher, request)
        self._place = place

    def job(self, n: int, part: str, environ: Optional[Mapping[str, str]] = None, *words: str) -> Ended:
        """A job of n ranks of a part of the worker; or of the contract's worker, with these words."""
        program = [sys.executable, *(words or (str(WORKER), part))]
        given = {"HOROVOD_CPU_OPERATIONS": "mpi", **self.environ, **(environ or {})}
        job = job_of(self.starter, self._place, environ=given)
        job.start(self.starter.command(n, program))
        return job.end()


@pytest.fixture(params=LIBRARIES)
def run(request: pytest.FixtureRequest, place: Place) -> Run:
    """Each library in turn."""
    return Run(request.param, place, request)


@pytest.fixture
def run_mpich(request: pytest.FixtureRequest, place: Place) -> Run:
    """One library, for what does not depend on it."""
    return Run("mpich", place, request)


def test_mpi_moves_tensors_in_two_lives_and_an_idle_rank_costs_nothing(run: Run) -> None:
    ended = run.job(3, "work")
    assert ended.code == 0 and ended.leftovers == [], str(ended)
    worked = by_rank(ended.of("worked"))
    assert [event["sums"] for event in worked] == [[3.0, 3.0, 3.0]] * 3, str(ended)
    assert all(event["why_not"] == event["why_not_again"] == "" for event in worked), str(ended)
    assert all(event["enabled"] and event["multiple"] for event in worked), str(ended)
    assert max(event["idle_s"] for event in worked) < 0.02, str(ended)


def test_where_nothing_is_said_the_log_says_who_moves_tensors_and_why(place: Place, run_mpich: Run) -> None:
    job = job_of(run_mpich.starter, place)
    program = "import logging, horovod.numpy as hvd; logging.basicConfig(level='INFO'); hvd.init(); hvd.barrier()"
    job.start(run_mpich.starter.command(2, [sys.executable, "-c", program]))
    ended = job.end()
    assert ended.code == 0, str(ended)
    assert ended.output.count("shared memory and connections move the tensors; they were faster") == 1, str(ended)


def test_the_level_info_is_enough_to_hear_who_moves_tensors(place: Place, run_mpich: Run) -> None:
    job = job_of(run_mpich.starter, place)
    program = "import horovod.numpy as hvd; hvd.init(); hvd.barrier()"
    words = ["--mpi", "-np", "2", "--log-level", "info", sys.executable, "-c", program]
    job.start([sys.executable, "-m", "horovod.runner", *words])
    ended = job.end()
    assert ended.code == 0, str(ended)
    told = ",[0-9]{3} \\[rank 0\\] our own shared memory and connections move the tensors; they were faster"
    assert len(re.findall(told, ended.output)) == 1, str(ended)


def test_one_thread_at_a_time_is_enough(run: Run) -> None:
    ended = run.job(2, "work", {"HOROVOD_MPI_THREADS_DISABLE": "1"})
    assert ended.code == 0, str(ended)
    assert [event["why_not"] for event in ended.of("worked")] == [""] * 2, str(ended)


def test_process_sets_whose_members_overlap(run: Run) -> None:
    ended = run.job(4, "sets")
    assert ended.code == 0, str(ended)
    assert [(event["right"], event["why_not"]) for event in ended.of("worked")] == [(True, "")] * 4, str(ended)


@pytest.mark.parametrize("name", ["openmpi5", "openmpi4", "mpich"])
def test_a_job_of_some_ranks_in_another_order(name: str, place: Place, request: pytest.FixtureRequest) -> None:
    run = Run(name, place, request)
    packages = list((ENVS / "mpi4py").glob("lib/python3*/site-packages"))
    if not packages:
        pytest.skip("mpi4py is not installed; `make launchers` installs it.")
    path = os.pathsep.join([str(ROOT / "python"), str(ROOT / "tests"), str(packages[0])])
    environ = {"LD_LIBRARY_PATH": str(ENVS / run.starter.id / "lib"), "PYTHONPATH": path}
    ended = run.job(4, "communicator", environ)
    assert ended.code == 0, str(ended)
    worked = by_rank(ended.of("worked"))
    assert [(event["gathered"], event["why_not"]) for event in worked] == [([3, 1], "")] * 2, str(ended)


def test_a_killed_rank_is_noticed_in_the_middle_of_an_allreduce(run: Run) -> None:
    ended = run.job(3, "die")
    died = ended.of("fault")[0]["at"]
    if run.starter.name == "Open MPI":  # Hydra kills all ranks of a program that has initialised MPI, at once
        raised = by_rank(ended.of("raised"))
        told = [(event["rank"], event["kind"]) for event in raised]
        assert told == [(0, "PeerLostError"), (2, "PeerLostError")], str(ended)
        assert all("rank 1" in event["message"] for event in raised), str(ended)
        assert max(event["at"] for event in raised) - died < DETECTION_S, str(ended)
        assert len(ended.of("over")) == 2, str(ended)
    assert ended.ended_s - died < 10, str(ended)


@pytest.mark.parametrize("size", [2, pytest.param(4, marks=pytest.mark.exhaustive)])
def test_the_contract(run: Run, size: int, tmp_path: Path) -> None:
    parts = ["cases", "semantics", "sets", "join"]
    words = ("--target", "numpy", "--directory", str(tmp_path), "--deadline", "100", *parts)
    path = os.pathsep.join(str(ROOT / each) for each in ("python", "tests", "tests/contract"))
    ended = run.job(size, "", {"PYTHONPATH": path}, str(CONTRACT), *words)
    reports = by_rank(ended.of("contract"))
    assert ended.code == 0 and [event["rank"] for event in reports] == list(range(size)), str(ended)
    assert [event["failures"] for event in reports] == [[]] * size, str(ended)
    assert all(set(event["counts"]) == set(parts) for event in reports), str(ended)


def test_horovodrun_starts_ranks_whose_tensors_mpi_moves(run_mpich: Run, place: Place) -> None:
    job = job_of(run_mpich.starter, place, environ={"HOROVOD_CPU_OPERATIONS": "mpi"})
    job.start([sys.executable, "-m", "horovod.runner", "--mpi", "-np", "2", sys.executable, str(WORKER), "work"])
    ended = job.end()
    assert ended.code == 0, str(ended)
    assert [event["why_not"] for event in ended.of("worked")] == [""] * 2, str(ended)


def test_a_launcher_of_no_mpi_is_named_and_the_job_works(place: Place, run_mpich: Run) -> None:
    job = job_of(run_mpich.starter, place, environ={"HOROVOD_CPU_OPERATIONS": "mpi"})
    job.start([sys.executable, "-m", "horovod.runner", "-np", "2", sys.executable, str(WORKER), "work"])
    ended = job.end()
    assert ended.code == 0, str(ended)
    assert all("started by horovodrun" in event["why_not"] for event in ended.of("worked")), str(ended)
    told = ended.output.count("HOROVOD_CPU_OPERATIONS=mpi: our own plane moves the tensors instead. Rank 0")
    assert told == 2, "once in each of the two lives"


def test_one_rank_without_the_library_makes_all_do_without(run_mpich: Run) -> None:
    ended = run_mpich.job(3, "one_without")
    assert ended.code == 0, str(ended)
    worked = ended.of("worked")
    assert [(event["sum"], event["enabled"]) for event in worked] == [(3.0, False)] * 3, str(ended)
    assert {event["why_not"].partition(" cannot")[0] for event in worked} == {"Rank 1: /no/such/libmpi.so"}, str(ended)


def test_ranks_that_differ_in_what_they_ask_for_do_not_start(run_mpich: Run) -> None:
    ended = run_mpich.job(2, "differ")
    messages = [event["message"] for event in ended.of("refused")]
    assert len(messages) == 2, str(ended)
    assert any("HOROVOD_CPU_OPERATIONS must be the same on all ranks" in each for each in messages), str(ended)


def test_the_timeline_names_mpi(run_mpich: Run, place: Place) -> None:
    timeline = place.folder / "timeline.json"
    ended = run_mpich.job(2, "work", {"HOROVOD_TIMELINE": str(timeline)})
    assert ended.code == 0, str(ended)
    names = {entry.get("name") for entry in json.loads(timeline.read_text())}
    assert "MPI_ALLREDUCE" in names and "GLOO_ALLREDUCE" not in names
