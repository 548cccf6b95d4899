"""Whether MPI moves the tensors of a job: what ranks agree upon, over the fake engine; no MPI."""

from __future__ import annotations

import dataclasses
import logging
from typing import Any

import pytest
from fakes.ranks import run_ranks

from horovod._core.life import session
from horovod._core.life.planes import mpi_plane
from horovod._core.settings import Settings
from horovod._core.settings.values import from_environ
from horovod._net.clusters.placement import Placement
from horovod._net.failures import MeetingError, StartTimeoutError
from horovod._net.mpi.handles import MPICH_STYLE

PLACE = Placement(0, 3, 0, 3, 0, 1, "MPICH", "key", "node")
MPI = Settings([("test", {"cpu_operations": "mpi"})])


class Noting:
    """The fake engine, and what it is told of MPI."""

    def __init__(self) -> None:
        self._engine: Any = session.require().engine
        self.mpi = self
        self.told: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def use(self, *words: Any) -> None:
        """Noted."""
        self.told.append(words)

    def refuse(self, why_not: str) -> None:
        """Noted."""
        self.told.append((why_not,))


class FakeSession:
    """MPI's session without MPI.

    Attributes:
        fault: what the start of MPI raises.
    """

    def __init__(self, fault: Exception | None = None, level: str = "") -> None:
        self.library = self
        self.style, self.path, self.serves = MPICH_STYLE, "/lib/libmpi.so.12", False
        self._fault, self._level = fault, level

    def described(self) -> str:
        """As of a library."""
        return "MPICH"

    def world(self, timeout_s: float) -> tuple[int, int]:
        """The launcher's numbers."""
        if self._fault is not None:
            raise self._fault
        return session.require().rank, 3

    def communicator(self, ranks: Any, timeout_s: float) -> int:
        """A number."""
        return 100 + len(ranks)

    def why_not_by_turns(self) -> str:
        """As given."""
        return self._level


def begin_on_three(monkeypatch: pytest.MonkeyPatch, sessions: Any, launcher: str = "MPICH") -> list[Any]:
    """What each engine was told; `sessions(rank)` gives or raises a session."""

    def body(rank: int) -> Any:
        place = dataclasses.replace(PLACE, rank=rank, local_rank=rank, launcher=launcher)
        engine = Noting()
        mpi_plane.begin(MPI, mpi_plane.Members(place, place, ()), engine, 5.0)
        return engine.told

    monkeypatch.setattr(mpi_plane.mpi, "of_this_process", lambda wanted: sessions(session.require().rank))
    monkeypatch.setattr(mpi_plane, "_session", lambda: sessions(session.require().rank))
    monkeypatch.setattr(mpi_plane, "left", lambda: "")
    return run_ranks(3, body)


def test_all_ranks_use_it_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    looked, used = (1, "/lib/libmpi.so.12", 0), (1, "/lib/libmpi.so.12", 103)
    assert begin_on_three(monkeypatch, lambda rank: FakeSession()) == [[looked, used]] * 3


def test_a_rank_without_a_library_keeps_all_from_starting_mpi(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def sessions(rank: int) -> FakeSession:
        if rank == 1:
            raise MeetingError("No MPI library was found.")
        return FakeSession(AssertionError("MPI was started"))

    with caplog.at_level(logging.WARNING, "horovod"):
        told = begin_on_three(monkeypatch, sessions)
    assert [each[-1] for each in told] == [("Rank 1: No MPI library was found.",)] * 3
    assert [record.message for record in caplog.records] == [
        "HOROVOD_CPU_OPERATIONS=mpi: our own plane moves the tensors instead. Rank 1: No MPI library was found."
    ]


@pytest.mark.parametrize(
    ("session_of_2", "reason"),
    [
        (
            FakeSession(StartTimeoutError("MPI initialisation did not finish within 5 s.")),
            "MPI initialisation did not finish within 5 s",
        ),
        (FakeSession(level="it grants one thread"), "it grants one thread"),
    ],
)
def test_a_rank_whose_mpi_does_not_start_or_has_too_few_threads_is_named(
    monkeypatch: pytest.MonkeyPatch, session_of_2: FakeSession, reason: str
) -> None:
    told = begin_on_three(monkeypatch, lambda rank: session_of_2 if rank == 2 else FakeSession())
    assert [each[-1] for each in told] == [(f"Rank 2: {reason}.",)] * 3


def test_a_launcher_of_no_mpi_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    told = begin_on_three(monkeypatch, lambda rank: FakeSession(), launcher="torchrun")
    assert all("Rank 0: the ranks were started by torchrun, which is not an MPI" in each[-1][0] for each in told)


def test_a_long_reason_is_cut_and_still_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def sessions(rank: int) -> FakeSession:
        raise MeetingError("é" * 2000)

    told = begin_on_three(monkeypatch, sessions)
    assert all(each[-1][0].startswith("Rank 0: éé") for each in told)


@pytest.mark.parametrize(
    ("environ", "level"),
    [
        ({}, "multiple"),
        ({"HOROVOD_MPI_THREADS_DISABLE": "1"}, "single"),
        ({"HOROVOD_MPI_THREADS_DISABLE": "1", "HOROVOD_CPU_OPERATIONS": "MPI"}, "serialized"),
        ({"HOROVOD_CPU_OPERATIONS": "mpi"}, "multiple"),
    ],
)
def test_the_level_of_threads_follows_the_settings(environ: dict[str, str], level: str) -> None:
    assert mpi_plane.wanted(from_environ(environ)).threads == level
