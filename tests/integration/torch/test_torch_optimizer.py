"""`DistributedOptimizer` between real ranks, with resident gradients and without."""

from __future__ import annotations

from pathlib import Path

import matrices
import pytest
from jobs.cases import CaseJob

WORKERS = Path(__file__).parent / "workers"
WARM = "torch with optimizers"
# Training as users start it: what is kept out of torch.compile's graphs is decorated otherwise once its compiler is
# imported.
JOBS = {
    "training": CaseJob(WORKERS / "optimizer_worker.py", warm="torch"),
    "uses": CaseJob(WORKERS / "optimizer_uses_worker.py", warm=WARM),
    "under_way": CaseJob(WORKERS / "under_way_worker.py", warm=WARM),
    "names": CaseJob(WORKERS / "optimizer_names_worker.py", warm=WARM),
    "copies": CaseJob(WORKERS / "odd_copies_worker.py", ranks=3, warm=WARM),
    "checked": CaseJob(WORKERS / "parameter_check_worker.py", environ={"HOROVOD_CHECK_PARAMETERS": "2"}, warm=WARM),
    "discards": CaseJob(
        WORKERS / "discards_worker.py",
        environ={"HOROVOD_STALL_CHECK_TIME_SECONDS": "2", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "10"},
        warm=WARM,
    ),
    "uneven": CaseJob(WORKERS / "uneven_worker.py", warm=WARM),
    "sparse": CaseJob(WORKERS / "sparse_worker.py", warm=WARM),
}
RECIPES = CaseJob(WORKERS / "recipes_worker.py", timeout_s=7200 if matrices.whole() else 100, warm=WARM)
RESIDENT = {
    name: CaseJob(WORKERS / f"{name}_worker.py", ranks=3, environ={"HOROVOD_RESIDENT_GRADIENTS": "1"}, warm=WARM)
    for name in ("optimizer", "optimizer_uses")
}


def cases_of(jobs: dict[str, CaseJob]) -> list[tuple[str, str]]:
    return [(name, case) for name, job in jobs.items() for case in job.cases]


@pytest.mark.parametrize(("job", "case"), cases_of(JOBS))
def test_optimizer(job: str, case: str) -> None:
    JOBS[job].check(case)


@pytest.mark.matrix
@pytest.mark.timeout(7300 if matrices.whole() else 120)
@pytest.mark.parametrize("case", RECIPES.cases)
def test_recipes_between_backward_and_step(case: str) -> None:
    RECIPES.check(case)


@pytest.mark.slow
@pytest.mark.parametrize(("job", "case"), cases_of(RESIDENT))
def test_training_of_three_ranks_with_resident_gradients(job: str, case: str) -> None:
    RESIDENT[job].check(case)
