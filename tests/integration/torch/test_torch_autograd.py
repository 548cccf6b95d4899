"""Gradients through the collectives, and collectives inside torch.compile, between real ranks."""

from __future__ import annotations

import pytest
from torch_job import TorchJob

JOB = TorchJob("autograd_worker.py", timeout_s=110)


@pytest.mark.parametrize("case", JOB.cases)
def test_autograd(case: str) -> None:
    JOB.check(case)
