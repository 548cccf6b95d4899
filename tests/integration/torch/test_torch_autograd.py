"""Gradients through the collectives, and collectives inside torch.compile, between real ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs.cases import CaseJob

WORKERS = Path(__file__).parent / "workers"
JOB = CaseJob(WORKERS / "autograd_worker.py", timeout_s=110, warm="torch")
COMPILED = CaseJob(WORKERS / "compiled_worker.py", timeout_s=280, warm="torch")  # 34 s alone


@pytest.mark.parametrize("case", JOB.cases)
def test_autograd(case: str) -> None:
    JOB.check(case)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("case", COMPILED.cases)
def test_compiled(case: str) -> None:
    COMPILED.check(case)
