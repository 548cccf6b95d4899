"""Broadcasts, SyncBatchNorm, data loaders and process sets between real ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs.cases import CaseJob

WORKERS = Path(__file__).parent / "workers"
TWO = CaseJob(WORKERS / "functions_worker.py", warm="torch with optimizers")
# Starting the loader's workers takes long, and they do not care how many ranks there are.
THREE = CaseJob(
    WORKERS / "functions_worker.py",
    3,
    cases=[case for case in TWO.cases if "data_loader" not in case],
    warm="torch with optimizers",
)


@pytest.mark.parametrize("case", TWO.cases)
def test_two_ranks(case: str) -> None:
    TWO.check(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", THREE.cases)
def test_three_ranks(case: str) -> None:
    THREE.check(case)
