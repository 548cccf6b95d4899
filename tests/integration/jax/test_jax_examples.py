"""The JAX examples run as a user runs them, and do what they say."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jobs import ROOT, horovodrun, run_well
from jobs.needs import needs

EXAMPLES = ROOT / "examples" / "jax"


def trained(ranks: int, script: str, *options: str) -> dict[str, Any]:
    output = run_well(horovodrun(ranks, str(EXAMPLES / script), *options), {"JAX_PLATFORMS": "cpu"})
    found: dict[str, Any] = json.loads(output.partition("RESULT ")[2].splitlines()[0])
    return found


@pytest.mark.slow
@needs("jax", "sklearn")
def test_digits_on_two_ranks_and_alone() -> None:
    together, alone = trained(2, "digits.py", "--epochs", "3"), trained(0, "digits.py", "--epochs", "3")
    assert together["equal"] and together["accuracy"] > 0.85
    assert abs(together["loss"] - alone["loss"]) < 1e-3


@pytest.mark.slow
@needs("jax", "sklearn", "optax")
def test_digits_with_optax_on_two_ranks() -> None:
    result = trained(2, "digits_optax.py", "--epochs", "3")
    assert result["equal"] and result["accuracy"] > 0.85


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_example_is_short(path: Any) -> None:
    assert len(path.read_text().splitlines()) <= 125
