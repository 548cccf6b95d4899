"""Operations that come again under their names, by the lane and by the plain way."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs.cases import CaseJob, cases_of

from horovod._native import lane

WORKER = Path(__file__).parent / "repeated_worker.py"
PLAIN = [case for case in cases_of(WORKER) if not case.startswith("case_lane_")]
WITH_THE_LANE = CaseJob(WORKER, warm="numpy")
WITHOUT = CaseJob(WORKER, environ={"HOROVOD_LANE": "0"}, cases=PLAIN, warm="numpy")


@pytest.mark.skipif(bool(lane.missing), reason=f"Not here: {lane.missing}.")
@pytest.mark.parametrize("case", WITH_THE_LANE.cases)
def test_by_the_lane(case: str) -> None:
    WITH_THE_LANE.check(case)


@pytest.mark.parametrize("case", WITHOUT.cases)
def test_plainly(case: str) -> None:
    WITHOUT.check(case)
