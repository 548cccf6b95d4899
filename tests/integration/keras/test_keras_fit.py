"""Training with Keras on two ranks: every case of the worker scripts, on every backend that is installed."""

from __future__ import annotations

import pytest
from keras_job import INSTALLED, TIMEOUT_S, cases, job

SCRIPTS = ("fit_worker.py", "surface_worker.py", "legacy_worker.py")
JOBS = {(script, backend): job(script, backend) for script in SCRIPTS for backend in INSTALLED}


@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT_S + 20)
@pytest.mark.parametrize(("script", "backend", "case"), [(*key, case) for key in JOBS for case in cases(*key)])
def test_case(script: str, backend: str, case: str) -> None:
    JOBS[script, backend].check(case)
