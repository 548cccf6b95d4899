"""The operations on torch tensors between real ranks."""

from __future__ import annotations

import pytest
from torch_job import TorchJob

TWO = TorchJob("ops_worker.py")
THREE = TorchJob("ops_worker.py", ranks=3)


@pytest.mark.parametrize("case", TWO.cases)
def test_two_ranks(case: str) -> None:
    TWO.check(case)


@pytest.mark.parametrize("case", THREE.cases)
def test_three_ranks(case: str) -> None:
    THREE.check(case)
