"""Elastic training with PyTorch on one host."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs.cases import CaseJob

WORKERS = Path(__file__).parent / "workers"
JOB = CaseJob(WORKERS / "elastic_worker.py", warm="torch with optimizers")


@pytest.mark.parametrize("case", JOB.cases)
def test_elastic(case: str) -> None:
    JOB.check(case)
