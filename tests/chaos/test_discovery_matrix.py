"""Discovery scripts that print nothing, rubbish, other hosts, or all in turns, and too late: a job never ends with code
0 without having trained, and never hangs. `make matrices` runs all of it."""

from __future__ import annotations

import os
import random
import shlex
from pathlib import Path

import matrices
import pytest
from jobs import Job, Place, python

from .discovery_life import Life
from .discovery_outputs import RANKS, Outputs, made_up

TRAINING = Path(__file__).parent.parent / "integration" / "elastic" / "workers" / "training.py"
STEPS = 60
GOOD = ("localhost:3\n", "localhost:4\n", "# mine\nlocalhost:2\n127.0.0.1:1\n")
OTHERS = ("localhost:2\n", "localhost:1\n", "localhost:0\n")


@pytest.mark.matrix
@matrices.cases("discovery", 200)
def test_a_life_ends_well_only_after_training(case: str) -> None:
    told = Life(case).live()
    assert told.well or not told.fair, told


@pytest.mark.matrix
@matrices.cases("discovery-jobs", 20)
def test_a_job_ends_well_only_after_training(case: str, tmp_path: Path) -> None:
    rng = random.Random(case)
    outputs, least = made_up(rng, GOOD, OTHERS), rng.choice((1, RANKS))
    script = written(outputs, tmp_path)
    # The ranks take seconds to come as far as hvd.init(), so that the trouble falls upon their start too.
    pause_s, start_s = rng.choice((0.02, 0.05, 0.1)), rng.choice((0, 2, 4))
    told = {"TEST_STEPS": str(STEPS), "TEST_PAUSE_S": str(pause_s), "TEST_START_S": str(start_s)}
    options = f"-np {RANKS} --min-np {least} --max-np 4 --elastic-timeout 15 --host-discovery-script {script}"
    with Place() as place:
        job = Job(place, {"PATH": os.environ["PATH"], **told})
        job.start([*python("-m", "horovod.runner"), *options.split(), *python(TRAINING)])
        ended = job.end(leftovers=True)
    assert ended.leftovers == [], str(ended)
    last = ended.of("end")
    if ended.code == 0:
        assert len(last) >= least and all(event["right"] and event["step"] >= STEPS for event in last), str(ended)
        epoch = max(event["epoch"] for event in ended.of("epoch"))
        assert len(last) >= len([event for event in ended.of("epoch") if event["epoch"] == epoch]), str(ended)
    else:
        assert not outputs.ends_well and "(--elastic-timeout)" in ended.stderr, str(ended)


def written(outputs: Outputs, folder: Path) -> Path:
    """A script whose runs are these."""
    for number, run in enumerate(outputs.runs):
        (folder / f"out-{number}").write_text(run.text or "half a line")
        (folder / f"noise-{number}").write_text(run.noise)
        (folder / f"how-{number}").write_text(f"sleep {run.takes_s:.1f}; code={run.code}\n")
    lines = (
        f"cd {shlex.quote(str(folder))}",
        "n=$(cat count 2>/dev/null || echo 0)",
        "echo $((n + 1)) >count",
        f"[ $n -lt {len(outputs.runs)} ] || n={len(outputs.runs) - 1}",
        ". ./how-$n",
        "cat noise-$n >&2",
        "cat out-$n",
        "exit $code",
    )
    path = folder / "find.sh"
    path.write_text("#!/bin/sh\n" + "\n".join(lines) + "\n")
    path.chmod(0o755)
    return path
