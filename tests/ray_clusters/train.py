"""`horovod.ray.HorovodConfig` in Ray Train: `make test-ray`. See `cluster` for the rest."""

from __future__ import annotations

import ast
import re
import time
from pathlib import Path
from typing import Any

import pytest
from cluster import ROOT, Cluster, cluster, run_program

__all__ = ["cluster"]  # the fixture


def ended(cluster: Cluster, program: str, place: Path, *words: str) -> tuple[dict[str, Any], str]:
    """Runs a program: its result, and all that it has written."""
    start_s = time.monotonic()
    output = run_program(cluster, place, program, *words)
    found = re.search(r"^RESULT (\{.*\}) (\S+)$", output, re.MULTILINE)
    assert found is not None, output[-8000:]
    print(f"{time.monotonic() - start_s:.0f} s: {found[1]}")
    return ast.literal_eval(found[1]), output


@pytest.mark.parametrize("backend", ["torch", "jax", "tensorflow"])
def test_a_training_of_keras(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    monkeypatch.setenv("KERAS_BACKEND", backend)
    program = (ROOT / "examples" / "ray" / "train_keras_digits.py").read_text()
    metrics, output = ended(cluster, program, tmp_path, "--storage", str(tmp_path), "--fails-in", "2")
    assert metrics["epoch"] == 5 and metrics["ranks"] == 2 and metrics["accuracy"] > 0.9, output
    assert metrics["first"] == 2 and "as a machine may fail" in output


def test_a_training_of_torch_with_ray_data_that_is_started_again(cluster: Cluster, tmp_path: Path) -> None:
    """The second workers are another job of Horovod, and go on from the checkpoint."""
    program = (ROOT / "examples" / "ray" / "train_digits.py").read_text()
    metrics, output = ended(cluster, program, tmp_path, "--storage", str(tmp_path), "--fails-in", "2")
    assert metrics["epoch"] == 5 and metrics["ranks"] == 2 and metrics["accuracy"] > 0.9, output
    assert metrics["first"] == 2 and "as a machine may fail" in output
