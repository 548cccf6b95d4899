"""Elastic training with PyTorch on one host."""

from __future__ import annotations

import pytest
from torch_job import TorchJob

JOB = TorchJob("elastic_worker.py")


@pytest.mark.parametrize("case", JOB.cases)
def test_elastic(case: str) -> None:
    JOB.check(case)
