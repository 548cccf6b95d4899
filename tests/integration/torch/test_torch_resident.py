"""Gradients that live in shared memory, between real ranks."""

from __future__ import annotations

import pytest
from torch_job import TorchJob

JOB = TorchJob("resident_worker.py")


@pytest.mark.parametrize("case", JOB.cases)
def test_resident_gradients(case: str) -> None:
    JOB.check(case)
