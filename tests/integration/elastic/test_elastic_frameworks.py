"""The elastic examples, one for each kind of training: as they are, and with rank 0 killed in the middle of a step and
replaced. They end as well as the undisturbed ones, with equal weights on all ranks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from jobs import ROOT, Ended, Job, Place, python
from jobs.needs import needs
from jobs.warm.frameworks import FRAMEWORKS

pytestmark = needs("sklearn")

DISTURBED = Path(__file__).parent / "workers" / "disturbed.py"
EXAMPLES = ROOT / "examples" / "elastic"
SIZE = 2
PATIENCE_S = 200.0


def train(
    environ: Mapping[str, str], *command: object, options: str = "", warm: str = ""
) -> tuple[Ended, dict[str, Any]]:
    """Runs a script with two ranks; how it went, and what it says of itself. `warm`: see `jobs.warm`."""
    variables = {"TEST_SIZE": str(SIZE), "TF_CPP_MIN_LOG_LEVEL": "3", **environ}
    with Place() as place:
        job = Job(place, variables)
        launcher = [*python("-m", "horovod.runner"), "-np", str(SIZE), "--min-np", "1", *options.split()]
        job.start([*launcher, *python(DISTURBED, *command, warm=warm)])
        ended = job.end(PATIENCE_S, leftovers=True)
    assert ended.code == 0, str(ended)
    # AutoGraph's files are TensorFlow's own, which one that is killed cannot remove.
    assert [name for name in ended.leftovers if "__autograph_generated_file" not in name] == [], str(ended)
    result: dict[str, Any] = json.loads(ended.stdout.partition("RESULT ")[2].splitlines()[0])
    return ended, result


@pytest.mark.slow
@pytest.mark.timeout(2 * PATIENCE_S + 20)
@pytest.mark.parametrize(
    ("script", "arguments", "environ", "warm"),
    [
        pytest.param("pytorch_digits.py", ("--workers", 2), {}, "", marks=needs("torch"), id="torch"),
        *(
            pytest.param(
                "tensorflow2_tape.py", ("--step", step), {}, warm, marks=needs("tensorflow"), id=f"tensorflow-{step}"
            )
            for step, warm in (("function", ""), ("eager", "tensorflow"), ("jit", "tensorflow"))
        ),
        pytest.param(
            "jax_digits.py",
            (),
            dict(FRAMEWORKS["keras on jax"].environ),
            "keras on jax",
            marks=needs("keras", "jax"),
            id="jax",
        ),
        *(
            pytest.param(
                "keras_fit.py",
                (),
                dict(FRAMEWORKS[f"keras on {backend}"].environ),
                f"keras on {backend}",
                marks=needs("keras", backend),
                id=f"keras-{backend}",
            )
            for backend in ("tensorflow", "torch", "jax")
        ),
    ],
)
def test_rank_0_is_killed_and_replaced(
    script: str, arguments: tuple[object, ...], environ: dict[str, str], warm: str, record_property: Any
) -> None:
    command = (EXAMPLES / script, *arguments)
    calm, undisturbed = train(environ, *command, warm=warm)
    torn, disturbed = train({**environ, "TEST_KILL_AT": "7"}, *command, warm=warm)
    record_property("undisturbed", undisturbed)
    record_property("disturbed", disturbed)
    print(f"{script} {' '.join(map(str, arguments))} {environ}: {undisturbed}, with the loss of rank 0 {disturbed}")

    assert [event["size"] for event in calm.of("epoch")] == [SIZE] * SIZE, str(calm)
    assert len(torn.of("killed")) == 1, str(torn)
    sizes = {event["epoch"]: event["size"] for event in torn.of("epoch")}
    assert list(sizes.values())[:3] == [SIZE, 1, SIZE], str(torn)
    # The survivor is the same process throughout, and rank 0 from then on.
    survivors = {event["pid"] for event in torn.of("epoch") if event["rank"] == 0 and event["epoch"] > 0}
    assert survivors == {event["pid"] for event in torn.of("epoch") if (event["rank"], event["epoch"]) == (1, 0)}

    for result in (undisturbed, disturbed):
        assert result["equal"] and result["size"] == SIZE, result
        assert result["accuracy"] > 0.85, result
    assert abs(disturbed["accuracy"] - undisturbed["accuracy"]) < 0.05
    # The learning rate follows the number of ranks, where the script scales it.
    rates = {event["size"]: event["lr"] for event in torn.of("epoch")}
    assert rates[SIZE] == pytest.approx(rates[1] * (SIZE if "lr" in undisturbed else 1))
    assert disturbed.get("lr") == pytest.approx(undisturbed.get("lr"))


@pytest.mark.slow
@pytest.mark.timeout(PATIENCE_S + 20)
@pytest.mark.parametrize(
    ("script", "environ"),
    [
        pytest.param("pytorch_digits.py", {}, marks=needs("torch"), id="torch"),
        pytest.param("tensorflow2_tape.py", {}, marks=needs("tensorflow"), id="tensorflow"),
        pytest.param("keras_fit.py", dict(FRAMEWORKS["keras on jax"].environ), marks=needs("keras", "jax"), id="keras"),
    ],
)
def test_all_ranks_are_lost_and_the_job_goes_on(script: str, environ: dict[str, str], tmp_path: Path) -> None:
    variables = {**environ, "TEST_KILL_AT": "7", "TEST_KILL_ALL": "1"}
    warm = "tensorflow" if script.startswith("tensorflow") else ""
    options = f"--max-restarts 1 --elastic-commit-dir {tmp_path} --elastic-commit-interval 0"
    ended, result = train(variables, EXAMPLES / script, options=options, warm=warm)
    assert len(ended.of("killed")) == SIZE, str(ended)
    # Commits are 4 batches apart; which was the last to be written is the disk's affair.
    taken = [event["done"] for event in ended.of("taken") if event["rank"] == 0]
    assert len(taken) == 2 and taken[0] == [0, 0] and taken[1] >= [0, 4], str(ended)
    assert result["equal"] and result["size"] == SIZE and result["accuracy"] > 0.85, result
    assert {path.suffix for path in tmp_path.iterdir()} == {".hvd"}


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_example_is_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 125
