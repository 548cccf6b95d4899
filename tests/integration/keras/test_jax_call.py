"""The core's custom call in functions compiled by JAX, on two ranks."""

from __future__ import annotations

import pytest
from jobs.needs import needs
from keras_backends import TIMEOUT_S, cases, job

pytestmark = needs("keras", "jax")

JOB = job("jax_call_worker.py", "jax")


@pytest.mark.timeout(TIMEOUT_S + 20)
@pytest.mark.parametrize("case", cases("jax_call_worker.py", "jax"))
def test_case(case: str) -> None:
    JOB.check(case)
