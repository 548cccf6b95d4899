"""HOROVOD_CPU_OPERATIONS=mpi over several hosts: MPI moves the tensors between them, and every value is right."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from jobs.report import VARIABLE, events_in

from ..conftest import ROOT, Ended, Hosts
from .mpis import MPIS, Mpi
from .test_mpi_over_hosts import present, remove_files_of_mpi

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

WORKER = ROOT / "tests" / "launchers" / "mpi_plane_worker.py"
CONTRACT = ROOT / "tests" / "contract" / "worker.py"
PARTS = ("cases", "semantics", "sets", "join")
# Name -> the MPI, and the library if it is not its own.
LIBRARIES = {**{mpi.id: (mpi.id, "") for mpi in MPIS}, "standard": ("mpich", "lib/libmpi_abi.so.1")}
DETECTION_S = 5.0  # of a process on another host


class Plane:
    """Jobs of one library.

    Args:
        name: of the library.
        hosts: where they run.
        folder: that all hosts see.
    """

    def __init__(self, name: str, hosts: Hosts, folder: Path) -> None:
        mpi, library = LIBRARIES[name]
        self.mpi: Mpi = present(mpi)
        self._library = {"HOROVOD_MPI_LIBRARY": str(self.mpi.folder / library)} if library else {}
        self._hosts = hosts
        self._folder = folder

    def job(
        self, counts: Sequence[int], words: Sequence[str], environ: Mapping[str, str] = {}
    ) -> tuple[Ended, list[dict[str, Any]]]:
        """A job, and what its ranks have reported, in the order of time. Nothing is left of it on any host."""
        path = os.pathsep.join(str(ROOT / each) for each in ("python", "tests", "tests/contract"))
        given = {"HOROVOD_CPU_OPERATIONS": "mpi", "PYTHONPATH": path, VARIABLE: str(self._folder)}
        command = self.mpi.command(counts, [sys.executable, *words], {**given, **self._library, **environ})
        began_s = time.monotonic()
        ended = self._hosts.ended(self._hosts.start_program(command), began_s, 150.0)
        remove_files_of_mpi(self._hosts)
        self._hosts.is_clean()
        return ended, events_in(self._folder)


@pytest.fixture(params=LIBRARIES)
def plane(request: pytest.FixtureRequest, hosts: Hosts, tmp_path: Path) -> Plane:
    """Each library in turn."""
    return Plane(request.param, hosts, tmp_path)


def of(events: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """Those of this name, in the order of their ranks."""
    return sorted((event for event in events if event["event"] == name), key=lambda event: int(event["rank"]))


@pytest.mark.parametrize("counts", [(2, 1), pytest.param((1, 1, 1), marks=pytest.mark.exhaustive)], ids=str)
def test_mpi_moves_tensors_in_two_lives_and_an_idle_rank_costs_little(plane: Plane, counts: tuple[int, ...]) -> None:
    ended, events = plane.job(counts, [str(WORKER), "work"])
    worked = of(events, "worked")
    assert ended.code == 0 and [event["rank"] for event in worked] == [0, 1, 2], ended
    assert [event["sums"] for event in worked] == [[3.0, 3.0, 3.0]] * 3, ended
    assert all(event["why_not"] == event["why_not_again"] == "" for event in worked), worked
    assert all(event["enabled"] and event["multiple"] for event in worked), worked
    assert max(event["idle_s"] for event in worked) < 0.05, worked


@pytest.mark.parametrize("counts", [(1, 1), pytest.param((2, 1, 1), marks=pytest.mark.exhaustive)], ids=str)
def test_the_contract(plane: Plane, counts: tuple[int, ...], tmp_path: Path) -> None:
    folder = tmp_path / "contract"
    folder.mkdir()
    words = [str(CONTRACT), "--target", "numpy", "--directory", str(folder), "--deadline", "140", *PARTS]
    ended, events = plane.job(counts, words, {"HVD_TEST_HOSTS": ",".join(map(str, counts))})
    reports = of(events, "contract")
    assert [event["rank"] for event in reports] == list(range(sum(counts))), ended
    assert [event["failures"] for event in reports] == [[]] * sum(counts), reports
    assert ended.code == 0 and all(set(event["counts"]) == set(PARTS) for event in reports), ended


def test_a_killed_rank_ends_the_job_and_is_named(plane: Plane) -> None:
    ended, events = plane.job((1, 1, 1), [str(WORKER), "die"])
    died_s = next(event["at"] for event in events if event["event"] == "fault")
    assert ended.code != 0, ended
    if plane.mpi.name == "Open MPI":  # Hydra kills all ranks of a program that has initialised MPI, and says why
        raised = of(events, "raised")
        # Their launcher kills them a second after it has told them to end: on a busy machine one may not have spoken.
        assert raised and {event["rank"] for event in raised} <= {0, 2}, (ended, raised)
        assert {event["kind"] for event in raised} == {"PeerLostError"}, (ended, raised)
        assert all("rank 1" in event["message"] for event in raised), raised
        assert max(event["at"] for event in raised) - died_s < DETECTION_S, (died_s, raised)
    else:
        assert any("host2" in line or "signal 9" in line or "KILLED" in line for line in ended.err + ended.out), ended
