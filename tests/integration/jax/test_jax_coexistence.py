"""`horovod.jax` beside `jax.distributed` and with two devices in a process, on two ranks."""

from __future__ import annotations

import pytest
from jax_jobs import TIMEOUT_S, WORKERS, job
from jobs.cases import cases_of
from jobs.needs import needs

pytestmark = needs("jax", "keras")

JOB = job("jax_coexistence_worker.py")


@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize("case", cases_of(WORKERS / "jax_coexistence_worker.py"))
def test_case(case: str) -> None:
    JOB.check(case)
