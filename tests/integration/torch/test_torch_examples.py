"""The PyTorch and NumPy examples run as a user runs them, and do what they say."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest
from torch_job import ROOT, environment

EXAMPLES = ROOT / "examples"


def run(*command: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def ranks(n: int, *command: str) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, "-m", "horovod.runner", "-np", str(n), sys.executable, *command)


def test_digits_trains_alone() -> None:
    done = run(sys.executable, str(EXAMPLES / "pytorch_digits.py"), "--epochs", "2")
    results = [json.loads(line.partition(" ")[2]) for line in done.stdout.splitlines() if line.startswith("RESULT")]
    assert len(results) == 2 and results[1]["loss"] < results[0]["loss"]


def test_demo_holds_its_claims() -> None:
    done = run(sys.executable, str(EXAMPLES / "demo.py"))
    assert "FAILED" not in done.stdout and done.stdout.count("ok  ") == 4


@pytest.mark.parametrize("n", [1, 3])
def test_numpy_statistics(n: int) -> None:
    assert f"rank 0 of {n} held" in ranks(n, str(EXAMPLES / "numpy_allreduce.py")).stdout


@pytest.mark.slow
@pytest.mark.parametrize("n", [2, 4])
def test_gradients_in_another_order_on_every_rank(n: int) -> None:
    worker = ROOT / "tests/integration/torch/workers/random_order_worker.py"
    assert ranks(n, str(worker)).stdout.count("passed 200 steps of 160 tensors") == n


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_example_is_short(path: pathlib.Path) -> None:
    assert len(path.read_text().splitlines()) < 100
