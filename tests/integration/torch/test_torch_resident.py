"""Gradients that live in shared memory, between real ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs.cases import CaseJob

WORKERS = Path(__file__).parent / "workers"
JOB = CaseJob(WORKERS / "resident_worker.py", environ={"HOROVOD_RESIDENT_GRADIENTS": "1"}, warm="torch with optimizers")


@pytest.mark.parametrize("case", JOB.cases)
def test_resident_gradients(case: str) -> None:
    JOB.check(case)
