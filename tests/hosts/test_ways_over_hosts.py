"""A few rows of `launcher_table`: torchrun and Slurm on several hosts by the user's secret, each with mistakes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .conftest import Hosts
from .launcher_mistakes import IMPOSSIBLE, MISTAKES, Mistake
from .launcher_table import Place, order, place, said, told, works
from .network import Network
from .ways import BY_MPI, SRUN, SRUN_PMI2, SSH, TORCHRUN, WAYS, Way

pytestmark = [pytest.mark.slow, pytest.mark.timeout(150)]

_SOON_S = 15.0  # torchrun takes some seconds by itself


@pytest.fixture(scope="module")
def at(network: Network, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Three hosts with a Slurm, where there is one."""
    with place(Hosts(network), tmp_path_factory.mktemp("shared"), SRUN.why_absent() is None) as made:
        yield made


def present(way: Way) -> Way:
    """The way; skips the test when it is not there."""
    if why := way.why_absent():
        pytest.skip(why)
    return way


@pytest.mark.parametrize(
    ("way", "counts"),
    [(TORCHRUN, (2, 1, 1)), (SRUN, (2, 1, 1)), (SRUN_PMI2, (1, 1))],
    ids=lambda each: each.name if isinstance(each, Way) else str(each),
)
def test_ranks_meet_and_work_and_meet_again(at: Place, way: Way, counts: tuple[int, ...]) -> None:
    ended, wrong = works(at, present(way), counts)
    assert not wrong, (wrong, ended)


def cases() -> Iterator[tuple[Way, Mistake]]:
    """All mistakes with torchrun and srun, which meet alike, by turns."""
    for number, mistake in enumerate(MISTAKES):
        yield (TORCHRUN, SRUN)[number % 2], mistake


@pytest.mark.parametrize(("way", "mistake"), list(cases()), ids=lambda each: each.name)
def test_a_mistake_is_reported(at: Place, way: Way, mistake: Mistake) -> None:
    found = told(at, present(way), mistake, until_over=False)
    assert found.line and found.after_s < _SOON_S, found


def rest() -> Iterator[tuple[Way, Mistake]]:
    """Those that no other test makes."""
    for way in WAYS:
        for mistake in MISTAKES:
            if (
                way.launcher != SSH.launcher
                and (way, mistake) not in cases()
                and (mistake.name, way.name) not in IMPOSSIBLE
            ):
                yield way, mistake


@pytest.mark.exhaustive
@pytest.mark.parametrize(("way", "mistake"), list(rest()), ids=lambda each: each.name)
def test_every_mistake_is_reported(at: Place, way: Way, mistake: Mistake) -> None:
    found = told(at, present(way), mistake, until_over=False)
    assert found.line, found


@pytest.mark.exhaustive
@pytest.mark.parametrize("way", BY_MPI, ids=lambda each: each.name)
def test_every_mpi_works_on_three_hosts(at: Place, way: Way) -> None:
    ended, wrong = works(at, present(way), (2, 1, 1))
    assert not wrong, (wrong, ended)


def test_without_a_secret_the_error_says_how_to_make_one(at: Place) -> None:
    asked = order(at, TORCHRUN, (1, 1), "refused")
    asked.secret = None
    ended = TORCHRUN.run(at.hosts, asked)
    errors = [each["error"] for each in said(ended)]
    assert errors and all("(umask 077; openssl rand -hex 32 > FILE)" in error for error in errors), ended


def test_a_rank_that_dies_in_the_meeting_is_named(at: Place) -> None:
    ended = SRUN.run(at.hosts, order(at, present(SRUN), (1, 2), "fail"))
    assert ended.code != 0
    errors = said(ended)
    assert errors and all("Rank 1" in each["error"] and each["seconds"] < 5.0 for each in errors), ended
