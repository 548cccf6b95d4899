"""Broadcasts, SyncBatchNorm, data loaders and process sets between real ranks."""

from __future__ import annotations

import pytest
from torch_job import TorchJob

TWO = TorchJob("functions_worker.py")
# Starting the loader's workers takes long, and they do not care how many ranks there are.
THREE = TorchJob("functions_worker.py", ranks=3, without="data_loader")


@pytest.mark.parametrize("case", TWO.cases)
def test_two_ranks(case: str) -> None:
    TWO.check(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", THREE.cases)
def test_three_ranks(case: str) -> None:
    THREE.check(case)
