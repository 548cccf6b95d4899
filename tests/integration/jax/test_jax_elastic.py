"""States of elastic training, and which failures its loop sees, on two ranks."""

from __future__ import annotations

import pytest
from jax_jobs import TIMEOUT_S, WORKERS, job
from jobs.cases import cases_of
from jobs.needs import needs

pytestmark = needs("jax", "keras", "optax")

JOB = job("jax_elastic_worker.py")


@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize("case", cases_of(WORKERS / "jax_elastic_worker.py"))
def test_case(case: str) -> None:
    JOB.check(case)
