"""TensorFlow scripts as users run them: the examples, graphs of TensorFlow 1, orders that differ, a rank that dies."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
from jobs import ROOT, horovodrun, run
from jobs.needs import needs

pytestmark = needs("tensorflow")

WORKERS = Path(__file__).parent / "workers"


def job(n: int, *command: object, code: int = 0, **variables: str) -> str:
    """Runs a script on `n` ranks, with more environment variables; what they all wrote."""
    ended = run(horovodrun(n, *command, warm="tensorflow"), {"TF_CPP_MIN_LOG_LEVEL": "2", **variables})
    assert ended.code == code, str(ended)
    return ended.stdout


@pytest.mark.slow
def test_tape_example_trains_alike_everywhere(tmp_path: Path) -> None:
    output = job(2, ROOT / "examples/tensorflow2_tape.py", "--steps", 300, "--checkpoint", tmp_path / "c")
    assert "equal weights on 2 ranks" in output
    losses = [float(text) for text in re.findall(r"Loss: ([0-9.]+)", output)]
    assert losses[-1] < losses[0] / 2
    assert list(tmp_path.glob("c*.index"))


@pytest.mark.slow
def test_session_example_trains_alike_everywhere(tmp_path: Path) -> None:
    output = job(2, ROOT / "examples/tensorflow1_session.py", "--steps", 200, "--checkpoint", tmp_path)
    weights = set(re.findall(r"weights ([0-9.]+)", output))
    assert len(weights) == 1, output
    for first, last in re.findall(r"loss ([0-9.]+) -> ([0-9.]+)", output):
        assert float(last) < float(first) / 2
    assert list(tmp_path.glob("model.ckpt*"))


@pytest.mark.slow
@pytest.mark.parametrize(("n", "behaviour"), [(2, "new"), (1, "new"), (2, "old")])
def test_graphs_of_tensorflow_1(n: int, behaviour: str) -> None:
    assert job(n, WORKERS / "graph_worker.py", behaviour).count("passed") == 7 * n


@pytest.mark.slow
@pytest.mark.parametrize("legacy", [False, True])
def test_aggregation(legacy: bool) -> None:
    if legacy and not importlib.util.find_spec("tf_keras"):
        pytest.skip("Keras 2 (tf_keras) is not installed.")
    variables = {"TF_USE_LEGACY_KERAS": "1"} if legacy else {}
    assert job(2, WORKERS / "aggregation_worker.py", **variables).count("passed") == 7 * 2


@pytest.mark.slow
def test_parameters_are_compared_after_the_first_steps() -> None:
    output = job(2, WORKERS / "parameter_check_worker.py", HOROVOD_CHECK_PARAMETERS="2")
    assert output.count("passed") == 3 * 2


@pytest.mark.slow
@pytest.mark.parametrize("n", [2, 4])
def test_random_order(n: int) -> None:
    assert job(n, WORKERS / "random_order_worker.py", 200).count("passed 200 steps") == n


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 2, 3])
def test_gathered_gradients(n: int) -> None:
    output = job(n, WORKERS / "gathered_worker.py")
    assert output.count("passed") == (6 if n == 2 else 5) * n, output


@pytest.mark.slow
def test_a_rank_that_dies_aborts_the_others() -> None:
    output = job(3, WORKERS / "killed_worker.py", code=137)
    assert len(re.findall(r"rank [02] got AbortedError after \d\.\d s: .*rank 1", output)) == 2, output
