"""Elastic states and the retry loop with Keras on two ranks, on every backend that is installed."""

from __future__ import annotations

import pytest
from keras_job import INSTALLED, TIMEOUT_S, cases, job

JOBS = {backend: job("elastic_worker.py", backend) for backend in INSTALLED}


@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT_S + 20)
@pytest.mark.parametrize(
    ("backend", "case"), [(backend, case) for backend in INSTALLED for case in cases("elastic_worker.py", backend)]
)
def test_case(backend: str, case: str) -> None:
    JOBS[backend].check(case)
