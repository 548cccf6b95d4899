"""`DistributedOptimizer` between real ranks, with resident gradients and without."""

from __future__ import annotations

from pathlib import Path

import matrices
import pytest
from jobs.cases import CaseJob

WORKERS = Path(__file__).parent / "workers"
# As users start: what is kept out of torch.compile's graphs is decorated otherwise once its compiler is imported.
TRAINING = CaseJob(WORKERS / "optimizer_worker.py", warm="torch")
USES = CaseJob(WORKERS / "optimizer_uses_worker.py", warm="torch with optimizers")
UNDER_WAY = CaseJob(WORKERS / "under_way_worker.py", warm="torch with optimizers")
NAMES = CaseJob(WORKERS / "optimizer_names_worker.py", warm="torch with optimizers")
COPIES = CaseJob(WORKERS / "odd_copies_worker.py", ranks=3, warm="torch with optimizers")
CHECKED = CaseJob(
    WORKERS / "parameter_check_worker.py", environ={"HOROVOD_CHECK_PARAMETERS": "2"}, warm="torch with optimizers"
)
RECIPES = CaseJob(
    WORKERS / "recipes_worker.py", timeout_s=7200 if matrices.whole() else 100, warm="torch with optimizers"
)
DISCARDS = CaseJob(
    WORKERS / "discards_worker.py",
    environ={"HOROVOD_STALL_CHECK_TIME_SECONDS": "2", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "10"},
    warm="torch with optimizers",
)
UNEVEN = CaseJob(WORKERS / "uneven_worker.py", warm="torch with optimizers")
SPARSE = CaseJob(WORKERS / "sparse_worker.py", warm="torch with optimizers")
RESIDENT = CaseJob(
    WORKERS / "optimizer_worker.py", ranks=3, environ={"HOROVOD_RESIDENT_GRADIENTS": "1"}, warm="torch with optimizers"
)
RESIDENT_USES = CaseJob(
    WORKERS / "optimizer_uses_worker.py",
    ranks=3,
    environ={"HOROVOD_RESIDENT_GRADIENTS": "1"},
    warm="torch with optimizers",
)


@pytest.mark.parametrize("case", TRAINING.cases)
def test_training(case: str) -> None:
    TRAINING.check(case)


@pytest.mark.parametrize("case", USES.cases)
def test_uses(case: str) -> None:
    USES.check(case)


@pytest.mark.parametrize("case", UNDER_WAY.cases)
def test_gradients_under_way(case: str) -> None:
    UNDER_WAY.check(case)


@pytest.mark.parametrize("case", NAMES.cases)
def test_names(case: str) -> None:
    NAMES.check(case)


@pytest.mark.parametrize("case", COPIES.cases)
def test_copies(case: str) -> None:
    COPIES.check(case)


@pytest.mark.matrix
@pytest.mark.timeout(7300 if matrices.whole() else 120)
@pytest.mark.parametrize("case", RECIPES.cases)
def test_recipes_between_backward_and_step(case: str) -> None:
    RECIPES.check(case)


@pytest.mark.parametrize("case", DISCARDS.cases)
def test_discarded_steps(case: str) -> None:
    DISCARDS.check(case)


@pytest.mark.parametrize("case", UNEVEN.cases)
def test_steps_of_different_passes(case: str) -> None:
    UNEVEN.check(case)


@pytest.mark.parametrize("case", SPARSE.cases)
def test_sparse_gradients(case: str) -> None:
    SPARSE.check(case)


@pytest.mark.parametrize("case", CHECKED.cases)
def test_parameters_are_compared_after_the_first_steps(case: str) -> None:
    CHECKED.check(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", RESIDENT.cases)
def test_training_of_three_ranks_with_resident_gradients(case: str) -> None:
    RESIDENT.check(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", RESIDENT_USES.cases)
def test_uses_with_three_ranks_with_resident_gradients(case: str) -> None:
    RESIDENT_USES.check(case)
