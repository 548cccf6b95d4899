"""Elastic states and the retry loop with Keras on two ranks, on every backend."""

from __future__ import annotations

import pytest
from keras_backends import BACKENDS, TIMEOUT_S, cases_everywhere, job

JOBS = {backend: job("elastic_worker.py", backend) for backend in BACKENDS}


@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT_S + 20)
@pytest.mark.parametrize(("backend", "case"), cases_everywhere("elastic_worker.py"))
def test_case(backend: str, case: str) -> None:
    JOBS[backend].check(case)
