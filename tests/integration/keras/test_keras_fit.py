"""Training with Keras on two ranks: every case of the worker scripts, on every backend that is installed."""

from __future__ import annotations

import pytest
from keras_job import INSTALLED, TIMEOUT_S, cases, job

SCRIPTS = ("fit_worker.py", "surface_worker.py", "legacy_worker.py", "legacy_graph_worker.py")
JOBS = {(script, backend): job(script, backend) for script in SCRIPTS for backend in INSTALLED}
QUICK = ["case_training_is_that_of_one_process", "case_broadcast_callback", "case_local_variables"]
SHORT_JOB = job("fit_worker.py", "legacy", only=QUICK)


@pytest.mark.skipif("legacy" not in INSTALLED, reason="needs Keras 2")
@pytest.mark.timeout(TIMEOUT_S + 20)
@pytest.mark.parametrize("case", QUICK)
def test_keras_2_in_short(case: str) -> None:
    SHORT_JOB.check(case)


@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT_S + 20)
@pytest.mark.parametrize(("script", "backend", "case"), [(*key, case) for key in JOBS for case in cases(*key)])
def test_case(script: str, backend: str, case: str) -> None:
    JOBS[script, backend].check(case)
