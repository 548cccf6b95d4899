"""The PyTorch and NumPy examples run as a user runs them, and do what they say."""

from __future__ import annotations

import json
import pathlib

import pytest
from jobs import ROOT, horovodrun, python, run_well

EXAMPLES = ROOT / "examples"


@pytest.mark.slow  # `make demo` runs it too
def test_digits_trains_alone() -> None:
    output = run_well(python(EXAMPLES / "pytorch_digits.py", "--epochs", "2", "--json"))
    results = [json.loads(line.partition(" ")[2]) for line in output.splitlines() if line.startswith("RESULT")]
    assert len(results) == 2 and results[1]["loss"] < results[0]["loss"]


@pytest.mark.slow
def test_digits_shows_people_one_line_per_epoch() -> None:
    output = run_well(python(EXAMPLES / "pytorch_digits.py", "--epochs", "2"))
    assert [line.split()[:2] for line in output.splitlines()] == [["epoch", "0"], ["epoch", "1"]]


@pytest.mark.slow
def test_demo_holds_its_claims() -> None:
    output = run_well(python(EXAMPLES / "demo.py"))
    assert "FAILED" not in output and output.count("ok  ") == 4


@pytest.mark.parametrize("n", [1, 3])
def test_numpy_statistics(n: int) -> None:
    assert f"rank 0 of {n} held" in run_well(horovodrun(n, EXAMPLES / "numpy_allreduce.py"))


@pytest.mark.slow
@pytest.mark.parametrize("n", [2, 4])
def test_gradients_in_another_order_on_every_rank(n: int) -> None:
    worker = ROOT / "tests/integration/torch/workers/random_order_worker.py"
    assert run_well(horovodrun(n, worker)).count("passed 200 steps of 160 tensors") == n


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_example_is_short(path: pathlib.Path) -> None:
    assert len(path.read_text().splitlines()) <= 125
