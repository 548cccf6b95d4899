"""Elastic jobs whose hosts or ranks fail before the training has begun: they begin all the same, and never end well for
nothing."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from jobs import Ended, Job, Place, python

import horovod

TRAINING = Path(__file__).parent / "workers" / "training.py"


def run(options: str, faults: list[Any], **variables: object) -> Ended:
    told = {f"TEST_{name.upper()}": str(value) for name, value in variables.items()}
    with Place() as place:
        job = Job(place, {"PATH": os.environ["PATH"], "TEST_FAULTS": json.dumps(faults), "TEST_STEPS": "5", **told})
        job.start([*python("-m", "horovod.runner"), *options.split(), *python(TRAINING)])
        return job.end(leftovers=True)


def check(ended: Ended, size: int) -> None:
    assert (ended.code, ended.leftovers) == (0, []), str(ended)
    assert [event["right"] for event in ended.of("end")] == [True] * size, str(ended)
    assert "no rank called hvd.init()" not in ended.stderr, str(ended)


def discovery(folder: Path, text: str) -> str:
    """Options for a script whose runs are counted in $n from 1."""
    script = folder / "find.sh"
    script.write_text(f"n=$(cat {folder}/n 2>/dev/null)x; echo $n >{folder}/n\n{text}\n")  # the shell runs it
    script.chmod(0o755)
    return f"--host-discovery-script {script}"


def test_a_script_that_prints_nothing_while_ranks_start_ends_no_job(tmp_path: Path) -> None:
    script = discovery(tmp_path, "[ $n = xx ] || echo localhost:2; echo localhost:7 >&2")
    ended = run(f"-np 2 {script}", [], start_s=3)
    check(ended, 2)
    assert "0 ranks of the 2 needed, waiting up to 600 s for more (the hosts are now none)." in ended.stderr
    assert ended.stderr.count("find.sh: localhost:7") == 1, str(ended)


@pytest.mark.slow
def test_one_that_prints_nothing_any_more_ends_it_with_a_reason(tmp_path: Path) -> None:
    script = discovery(tmp_path, "[ $n != x ] || echo localhost:2")
    ended = run(f"-np 2 --elastic-timeout 2 {script}", [], start_s=60)
    assert (ended.code, ended.leftovers) == (1, []), str(ended)
    words = "2 ranks are needed, but after 2 s (--elastic-timeout) there are none: the hosts are now none"
    assert words in ended.stderr, str(ended)


@pytest.mark.slow
def test_all_ranks_may_be_killed_while_they_start() -> None:
    check(run("-np 2 --min-np 2", [["start", "any", "kill"]] * 3), 2)


def test_a_rank_that_hangs_before_init_is_replaced() -> None:
    ended = run("-np 3 --min-np 1 --start-timeout 2", [["start", "any", "stop"]])
    check(ended, 3)
    assert "did not call hvd.init() within 2 s of the others (--start-timeout), so it seems to hang" in ended.stderr


def without_init(lost: int) -> int:
    rank = int(os.environ["HOROVOD_RANK"])
    if rank == lost:
        os._exit(0)
    time.sleep(0.0 if rank else 0.5)  # rank 0 ends last
    return rank


def test_a_function_that_never_calls_init_gives_the_results_of_all() -> None:
    assert horovod.run(without_init, args=(-1,), num_proc=3, min_num_proc=3) == [0, 1, 2]


def test_a_result_that_is_missing_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="ended with code 0 before the function returned"):
        horovod.run(without_init, args=(1,), num_proc=2, min_num_proc=2)
