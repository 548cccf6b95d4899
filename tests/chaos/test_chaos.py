"""The chaos matrix: after every case all ranks hold the same, nothing committed is lost, and nothing is left."""

from __future__ import annotations

import pytest

from .case_run import Case, run
from .promises import broken
from .table import LONG, SHORT, made_up, without_launcher


def check(case: Case) -> None:
    story = run(case)
    complaints = broken(story)
    assert not complaints, "\n".join([*complaints, str(story)])


@pytest.mark.parametrize("case", SHORT, ids=str)
def test_the_job_survives(case: Case) -> None:
    check(case)


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("case", LONG, ids=str)
def test_the_job_does_what_is_promised(case: Case) -> None:
    check(case)


@pytest.mark.slow
@pytest.mark.parametrize("size", [3, 5])
def test_faults_that_a_seed_makes_up(size: int) -> None:
    check(made_up("tests", size, 15))


@pytest.mark.slow
@pytest.mark.parametrize("what", ["KILL", "TERM"])
def test_nothing_is_left_when_the_launcher_goes_in_the_middle_of_them(what: str) -> None:
    check(without_launcher(made_up("launcher", 4, 6), what))
