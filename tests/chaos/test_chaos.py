"""The chaos matrix: after every case all ranks hold the same, nothing committed is lost, and nothing is left."""

from __future__ import annotations

import pytest

from .case_run import Case, run
from .promises import broken
from .table import LONG, SHORT, made_up


def check(case: Case) -> None:
    story = run(case)
    complaints = broken(story)
    assert not complaints, "\n".join([*complaints, str(story)])


@pytest.mark.parametrize("case", SHORT, ids=str)
def test_the_job_survives(case: Case) -> None:
    check(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", LONG, ids=str)
def test_the_job_does_what_is_promised(case: Case) -> None:
    check(case)


@pytest.mark.slow
@pytest.mark.parametrize("size", [3, 5])
def test_faults_that_a_seed_makes_up(size: int) -> None:
    check(made_up("tests", size, 15))
