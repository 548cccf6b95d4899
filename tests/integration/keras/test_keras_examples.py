"""The Keras examples run as a user runs them, and do what they say."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import sys

import pytest
from keras_job import INSTALLED, QUIET, ROOT, environment

pytest.importorskip("sklearn")

KERAS_3 = [backend for backend in INSTALLED if backend != "legacy"]


def run(*command: str, ranks: int = 1, **environ: str) -> str:
    launch = [] if ranks == 1 else [sys.executable, "-m", "horovod.runner", "-np", str(ranks)]
    done = subprocess.run(
        [*launch, sys.executable, *command],
        env=environment(**QUIET, **environ),
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def fitted(ranks: int, backend: str, *options: str) -> dict[str, list[float]]:
    output = run(str(ROOT / "examples" / "keras_fit.py"), *options, ranks=ranks, KERAS_BACKEND=backend)
    found: dict[str, list[float]] = json.loads(output.partition("RESULT ")[2].splitlines()[0])
    return found


SLOW = [pytest.param(backend, marks=pytest.mark.slow) for backend in KERAS_3[1:]]


@pytest.mark.parametrize("backend", [*KERAS_3[:1], *SLOW])
def test_fit_with_two_ranks(backend: str, tmp_path: pathlib.Path) -> None:
    result = fitted(2, backend, "--epochs", "6", "--save", str(tmp_path / "model.keras"))
    assert result["equal"] and result["loss"][-1] < result["loss"][0] / 3 and result["val"][-1] > 0.85
    assert (tmp_path / "model.keras").exists()


@pytest.mark.slow
@pytest.mark.skipif(not KERAS_3, reason="needs Keras 3")
def test_fit_alone() -> None:
    assert fitted(1, KERAS_3[-1], "--epochs", "2")["equal"]


@pytest.mark.slow
@pytest.mark.skipif("tensorflow" not in KERAS_3, reason="needs TensorFlow")
def test_sagemaker(tmp_path: pathlib.Path) -> None:
    script = str(ROOT / "examples" / "keras_sagemaker.py")
    output = run(script, "--epochs", "3", "--batch-size", "16", SM_MODEL_DIR=str(tmp_path), ranks=2)
    assert float(re.findall(r"accuracy (0\.\d+)$", output, re.M)[-1]) > 0.7
    assert {path.name for path in tmp_path.iterdir()} == {*(f"checkpoint-{n}.keras" for n in (1, 2, 3)), "model.keras"}


@pytest.mark.parametrize("name", ["keras_fit.py", "keras_sagemaker.py"])
def test_example_is_short(name: str) -> None:
    assert len((ROOT / "examples" / name).read_text().splitlines()) < 100
