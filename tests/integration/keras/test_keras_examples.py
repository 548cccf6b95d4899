"""The Keras examples run as a user runs them, and do what they say."""

from __future__ import annotations

import json
import pathlib
import re

import pytest
from jobs import ROOT, horovodrun, run_well
from jobs.needs import needs
from keras_backends import QUIET, needs_backend

pytestmark = needs("sklearn")


def run(*command: str, ranks: int = 0, **environ: str) -> str:
    return run_well(horovodrun(ranks, *command), {**QUIET, **environ})


def fitted(ranks: int, backend: str, *options: str) -> dict[str, list[float]]:
    output = run(str(ROOT / "examples" / "keras_fit.py"), *options, ranks=ranks, KERAS_BACKEND=backend)
    found: dict[str, list[float]] = json.loads(output.partition("RESULT ")[2].splitlines()[0])
    return found


@pytest.mark.parametrize(
    "backend",
    [
        pytest.param("tensorflow", marks=[needs_backend("tensorflow"), pytest.mark.slow]),
        pytest.param("torch", marks=[needs_backend("torch"), pytest.mark.slow]),
        pytest.param("jax", marks=[needs_backend("jax"), pytest.mark.slow]),
    ],
)
def test_fit_with_two_ranks(backend: str, tmp_path: pathlib.Path) -> None:
    result = fitted(2, backend, "--epochs", "6", "--save", str(tmp_path / "model.keras"))
    assert result["equal"] and result["loss"][-1] < result["loss"][0] / 3 and result["val"][-1] > 0.85
    assert (tmp_path / "model.keras").exists()


@pytest.mark.slow
@needs_backend("jax")
def test_fit_alone() -> None:
    assert fitted(0, "jax", "--epochs", "2")["equal"]


@pytest.mark.slow
@needs_backend("tensorflow")
def test_sagemaker(tmp_path: pathlib.Path) -> None:
    script = str(ROOT / "examples" / "keras_sagemaker.py")
    output = run(script, "--epochs", "3", "--batch-size", "16", SM_MODEL_DIR=str(tmp_path), ranks=2)
    assert float(re.findall(r"accuracy (0\.\d+)$", output, re.M)[-1]) > 0.7
    assert {path.name for path in tmp_path.iterdir()} == {*(f"checkpoint-{n}.keras" for n in (1, 2, 3)), "model.keras"}


@pytest.mark.parametrize("name", ["keras_fit.py", "keras_sagemaker.py"])
def test_example_is_short(name: str) -> None:
    assert len((ROOT / "examples" / name).read_text().splitlines()) <= 125
