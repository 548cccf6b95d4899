"""Training with Keras on two ranks: every case of the worker scripts, on every backend."""

from __future__ import annotations

import pytest
from keras_backends import BACKENDS, TIMEOUT_S, cases_everywhere, job, needs_backend

NAMES = (
    "fit_worker.py",
    "surface_worker.py",
    "legacy_worker.py",
    "legacy_graph_worker.py",
    "once_worker.py",
    "default_check_worker.py",
)
# Of each script, the environment variables that its jobs have besides.
SCRIPTS = {**{name: {} for name in NAMES}, "parameter_check_worker.py": {"HOROVOD_CHECK_PARAMETERS": "2"}}
JOBS = {(script, backend): job(script, backend, **SCRIPTS[script]) for script in SCRIPTS for backend in BACKENDS}
QUICK = ["case_training_is_that_of_one_process", "case_broadcast_callback", "case_local_variables"]
SHORT_JOB = job("fit_worker.py", "legacy", only=QUICK)


@needs_backend("legacy")
@pytest.mark.timeout(TIMEOUT_S + 20)
@pytest.mark.parametrize("case", QUICK)
def test_keras_2_in_short(case: str) -> None:
    SHORT_JOB.check(case)


@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT_S + 20)
@pytest.mark.parametrize(
    ("script", "backend", "case"),
    [pytest.param(script, *each.values, marks=each.marks) for script in SCRIPTS for each in cases_everywhere(script)],
)
def test_case(script: str, backend: str, case: str) -> None:
    JOBS[script, backend].check(case)
