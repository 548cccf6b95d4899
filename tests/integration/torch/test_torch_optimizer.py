"""`DistributedOptimizer` between real ranks, with resident gradients and without."""

from __future__ import annotations

import pytest
from torch_job import TorchJob

TRAINING = TorchJob("optimizer_worker.py")
USES = TorchJob("optimizer_uses_worker.py")
PRIVATE = TorchJob("optimizer_worker.py", ranks=3, HOROVOD_RESIDENT_GRADIENTS="0")
PRIVATE_USES = TorchJob("optimizer_uses_worker.py", ranks=3, HOROVOD_RESIDENT_GRADIENTS="0")


@pytest.mark.parametrize("case", TRAINING.cases)
def test_training(case: str) -> None:
    TRAINING.check(case)


@pytest.mark.parametrize("case", USES.cases)
def test_uses(case: str) -> None:
    USES.check(case)


@pytest.mark.parametrize("case", PRIVATE.cases)
def test_training_of_three_ranks_without_resident_gradients(case: str) -> None:
    PRIVATE.check(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", PRIVATE_USES.cases)
def test_uses_with_three_ranks_without_resident_gradients(case: str) -> None:
    PRIVATE_USES.check(case)
