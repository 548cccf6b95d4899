"""Commits of TensorFlow variables, in one process."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs.cases import CaseJob
from jobs.needs import needs

pytestmark = needs("tensorflow")

JOB = CaseJob(
    Path(__file__).parent / "workers" / "commit_worker.py", 1, {"TF_CPP_MIN_LOG_LEVEL": "3"}, warm="tensorflow"
)


@pytest.mark.slow
@pytest.mark.parametrize("case", JOB.cases)
def test_case(case: str) -> None:
    JOB.check(case)
