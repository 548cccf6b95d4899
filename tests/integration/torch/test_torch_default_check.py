"""Parameters that differ are told where nobody has asked for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs.cases import CaseJob

JOB = CaseJob(Path(__file__).parent / "workers" / "default_check_worker.py", warm="torch with optimizers")


@pytest.mark.parametrize("case", JOB.cases)
def test_what_differs_is_told(case: str) -> None:
    JOB.check(case)
