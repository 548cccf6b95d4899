"""deploy/azureml: what Azure ML's own client reads from it, and the script on two ranks."""

from __future__ import annotations

import importlib.util
import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jobs import horovodrun, run_well

from horovod._core.settings import SETTINGS

from .tools import DEPLOY, checker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(150)]

FOLDER = DEPLOY / "azureml"
SCRIPT = FOLDER / "src" / "train_sentiment_classification.py"


@pytest.fixture(scope="module")
def asked() -> dict[str, Any]:
    """What the client reads, which takes it seconds."""
    done = checker("ask_azure.py", str(FOLDER))
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_yaml_and_python_ask_for_the_same_ranks_and_settings(asked: dict[str, Any]) -> None:
    job = asked["program"]
    assert asked["pipeline"] == job
    assert job["kind"] == "mpi"
    variables = job["variables"]
    assert variables["HOROVOD_TIMELINE"] == "./outputs/timeline.json"
    assert variables["HOROVOD_EXPECTED_HOSTS"] == str(job["nodes"])
    assert variables["HOROVOD_EXPECTED_SIZE"] == str(job["nodes"] * job["processes"])
    assert set(variables) <= {setting.env for setting in SETTINGS}


def test_the_command_names_every_input_and_option_of_the_script(asked: dict[str, Any]) -> None:
    program, *words = shlex.split(asked["command"])[1:]
    options = [word for word in words if word.startswith("--")]
    assert program == SCRIPT.name
    assert sorted(option[2:].replace("-", "_") for option in options) == sorted([*asked["inputs"], "trained_model"])
    assert all(f'"{option}"' in SCRIPT.read_text() for option in options)


def test_the_script_learns_on_two_ranks(tmp_path: Path) -> None:
    if not importlib.util.find_spec("keras") or not importlib.util.find_spec("tensorflow"):
        pytest.skip("keras and tensorflow are not installed.")
    draw = np.random.default_rng(1)
    labels = draw.integers(0, 2, 256)
    tokens = draw.integers(1, 50, (256, 20)) + 50 * labels[:, None]  # good reviews have words of their own
    np.savez(tmp_path / "reviews.npz", tokens=tokens, labels=labels)
    words = f"--input-data {tmp_path} --trained-model {tmp_path}/model --max-tokens 100 --epochs 8 --learning-rate 0.02"
    said = run_well(horovodrun(2, SCRIPT, *words.split()), cwd=tmp_path)
    (result,) = [line for line in said.splitlines() if "RESULT" in line]
    assert "ranks 2" in result and float(result.split()[-1]) > 0.95, said
    assert (tmp_path / "model" / "model.keras").is_file()
