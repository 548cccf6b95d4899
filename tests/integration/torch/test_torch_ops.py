"""The operations on torch tensors between real ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs.cases import CaseJob

WORKERS = Path(__file__).parent / "workers"
TWO = CaseJob(WORKERS / "ops_worker.py", warm="torch")
THREE = CaseJob(WORKERS / "ops_worker.py", ranks=3, warm="torch")


@pytest.mark.parametrize("case", TWO.cases)
def test_two_ranks(case: str) -> None:
    TWO.check(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", THREE.cases)
def test_three_ranks(case: str) -> None:
    THREE.check(case)
