"""deploy/sagemaker and the script that it runs: channels, the bucket, and the learning rate's decay."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jobs import horovodrun, run_well

from .tools import DEPLOY

SCRIPT = DEPLOY.parent / "examples" / "keras_sagemaker.py"
CHANNELS = ("train", "validation", "test")


class Noted(types.SimpleNamespace):
    """What stands in for a class of the SDK: keeps its arguments."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.trained: list[dict[str, Any]] = []

    def train(self, **given: Any) -> None:
        self.trained.append(given)


def submit(monkeypatch: pytest.MonkeyPatch) -> Any:
    """deploy/sagemaker/submit.py, with stand-ins for the SDK."""
    classes = {
        "sagemaker": (),
        "sagemaker.train": ("ModelTrainer",),
        "sagemaker.train.configs": ("Compute", "InputData", "SourceCode"),
        "sagemaker.train.distributed": ("MPI",),
    }
    for module, names in classes.items():
        stand_in = types.ModuleType(module)
        vars(stand_in).update(dict.fromkeys(names, Noted))
        monkeypatch.setitem(sys.modules, module, stand_in)
    spec = importlib.util.spec_from_file_location("submit", DEPLOY / "sagemaker" / "submit.py")
    assert spec and spec.loader
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


@pytest.mark.parametrize("slash", ["", "/"])
def test_the_bucket_has_a_folder_for_each_channel(slash: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = submit(monkeypatch)
    made = program.trainer("role", "image")
    monkeypatch.setattr(program, "trainer", lambda role, image: made)
    program.main("role", "image", f"s3://bucket/prefix{slash}")
    (given,) = made.trained
    found = {each.channel_name: each.data_source for each in given["input_data_config"]}
    assert found == {name: f"s3://bucket/prefix/{name}" for name in CHANNELS}


def test_all_ranks_get_the_channels_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    words = submit(monkeypatch).trainer("role", "image").distributed.mpi_additional_options
    exported = {name for option, name in zip(words, words[1:]) if option == "-x"}
    assert {f"SM_CHANNEL_{name.upper()}" for name in CHANNELS} < exported


def test_every_argument_of_submit_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    program = submit(monkeypatch)
    made = program.trainer("role", "image")
    assert (made.role, made.training_image) == ("role", "image")
    options = {f"--{name}" for name in made.hyperparameters}
    assert options <= set(re.findall(r'"(--[\w-]+)"', SCRIPT.read_text()))


# ---- the script

slow = pytest.mark.slow


@pytest.fixture
def needs_tensorflow() -> None:
    if not importlib.util.find_spec("tensorflow") or not importlib.util.find_spec("keras"):
        pytest.skip("keras and tensorflow are not installed.")


def result(said: str) -> tuple[int, int, float]:
    """Ranks, images of the test channel and accuracy on them."""
    found = re.search(r"RESULT ranks (\d+) test images (\d+) .* accuracy ([\d.]+)", said)
    assert found, said
    return int(found[1]), int(found[2]), float(found[3])


@slow
@pytest.mark.timeout(150)
@pytest.mark.usefixtures("needs_tensorflow")
def test_the_script_trains_validates_and_tests_on_its_channels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The data of each channel are told apart by their number, and those of the test channel by their labels."""
    subprocess.run([sys.executable, SCRIPT, "--write-data", tmp_path], check=True, capture_output=True)
    for number, name in enumerate(CHANNELS):
        file = tmp_path / name / "digits.npz"
        with np.load(file) as data:
            images, labels = data["images"][number:], data["labels"][number:]
        np.savez(file, images=images, labels=(labels + 1) % 10 if name == "test" else labels)
        monkeypatch.setenv(f"SM_CHANNEL_{name.upper()}", str(tmp_path / name))
    said = run_well(horovodrun(2, SCRIPT, "--epochs", 3, warm="tensorflow"), cwd=tmp_path)
    validated = re.findall(r"val_accuracy: ([\d.]+)", said)
    assert validated and float(validated[-1]) > 0.5, said
    ranks, images, accuracy = result(said)
    assert (ranks, images) == (2, 1797 - int(1797 * 0.8) - 2)
    assert accuracy < 0.2, said  # no digit has its own name there
    assert (tmp_path / "model" / "model.keras").is_file()


@slow
@pytest.mark.usefixtures("needs_tensorflow")
def test_a_channel_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SM_CHANNEL_TRAIN", str(tmp_path))
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1 and "The channel validation is missing" in done.stderr, done.stderr


RATES = """
import sys
sys.path.insert(0, sys.argv[1])
import horovod.tensorflow.keras as hvd
import keras_sagemaker
hvd.init()
optimizer = keras_sagemaker.make_model(0.1, 0.9, 0.5, 2).optimizer
first = float(optimizer.learning_rate)
optimizer.iterations.assign(10)
print(first, float(optimizer.learning_rate), optimizer.weight_decay)
"""


@slow
@pytest.mark.usefixtures("needs_tensorflow")
def test_decay_is_the_learning_rates_as_in_keras_2() -> None:
    """rate / (1 + decay * steps); and the weights do not decay."""
    done = subprocess.run([sys.executable, "-c", RATES, SCRIPT.parent], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    first, later, weight_decay = done.stdout.split()[-3:]
    assert float(first) == pytest.approx(0.2) and float(later) == pytest.approx(0.2 / 6) and weight_decay == "None"
