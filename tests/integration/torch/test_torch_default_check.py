"""Parameters that differ are told where nobody has asked for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs.cases import CaseJob, cases_of

WORKER = Path(__file__).parent / "workers" / "default_check_worker.py"
OF_THREE = ["case_what_process_sets_reduce_is_not_compared"]
OF_TWO = [case for case in cases_of(WORKER) if case not in OF_THREE]
JOB = CaseJob(WORKER, cases=OF_TWO, warm="torch with optimizers")
JOB_OF_THREE = CaseJob(WORKER, ranks=3, cases=OF_THREE, warm="torch with optimizers")


@pytest.mark.parametrize("case", OF_TWO)
def test_what_differs_is_reported(case: str) -> None:
    JOB.check(case)


@pytest.mark.parametrize("case", OF_THREE)
def test_on_three_ranks(case: str) -> None:
    JOB_OF_THREE.check(case)
