"""The contract of the adapters on JAX's arrays, on two ranks."""

from __future__ import annotations

import pytest
from jax_jobs import TIMEOUT_S, WORKERS, job
from jobs.cases import cases_of
from jobs.needs import needs

pytestmark = [needs("jax", "keras"), pytest.mark.slow]

JOB = job("jax_contract_worker.py")


@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize("case", cases_of(WORKERS / "jax_contract_worker.py"))
def test_case(case: str) -> None:
    JOB.check(case)
