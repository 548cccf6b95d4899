"""Variables that differ are told where nobody has asked for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs.cases import CaseJob, cases_of
from jobs.needs import needs

TIMEOUT_S = 220  # two ranks with TensorFlow need 15 s alone
pytestmark = [needs("tensorflow"), pytest.mark.slow, pytest.mark.timeout(TIMEOUT_S + 20)]

WORKER = Path(__file__).parent / "workers" / "default_check_worker.py"
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3"}
OFF = "case_zero_switches_it_off"
JOB = CaseJob(WORKER, 2, QUIET, [case for case in cases_of(WORKER) if case != OFF], TIMEOUT_S, "tensorflow")
JOB_WITHOUT = CaseJob(WORKER, 2, {**QUIET, "HOROVOD_CHECK_PARAMETERS": "0"}, [OFF], TIMEOUT_S, "tensorflow")


@pytest.mark.parametrize("case", JOB.cases)
def test_what_differs_is_reported(case: str) -> None:
    JOB.check(case)


def test_zero_switches_it_off() -> None:
    JOB_WITHOUT.check(OFF)
