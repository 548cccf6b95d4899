"""The tests of JAX on a GPU (tests/gpu/jax_cuda.py), where JAX has the CPU: what they expect is right, and the CPU's
handler does all of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs import horovodrun, run
from jobs.needs import needs

pytestmark = needs("jax")

SCRIPT = Path(__file__).parents[2] / "gpu" / "jax_cuda.py"


@pytest.mark.timeout(180)
@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_the_script_on_the_cpu(ranks: int) -> None:
    ended = run(horovodrun(ranks, SCRIPT, "cpu"), {"JAX_PLATFORMS": "cpu"}, patience_s=150)
    assert ended.code == 0 and ended.output.count("parts are right on cpu") == ranks, str(ended)


def test_it_does_not_pass_on_another_platform() -> None:
    ended = run(horovodrun(1, SCRIPT, "cuda"), {"JAX_PLATFORMS": "cpu"})
    assert ended.code != 0 and "JAX computes on cpu" in ended.output, str(ended)
