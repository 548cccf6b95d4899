"""Autotune at work: rank 0 switches the parameters of a running job, and all ranks' results stay equal."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
from jobs import Ended, on_hosts, python, run

# Steps of a dozen tensors until rank 0 has kept something; every rank adds up what it got.
_PROGRAM = """
import hashlib, os, sys, threading
import numpy as np
import horovod.numpy as hvd
from horovod._core.life.autotuning import parameters
from jobs.report import report

hvd.init()
gradients = [np.random.RandomState(i).rand(50 if i % 3 else 20_000).astype(np.float32) for i in range(12)]
digest, step, going = hashlib.sha256(), 0, True
seen = set()
while going and step < int(os.environ.get("STEPS", "5000")):
    step += 1
    handles = [hvd.allreduce_async(g * step, op=hvd.Sum, name=f"g.{i}") for i, g in enumerate(gradients)]
    for handle in handles:
        digest.update(hvd.synchronize(handle).tobytes())
    now = parameters.in_force()
    seen.add((now.fusion_threshold_bytes, now.cycle_time_ms))
    if step % 20 == 0:
        tuning = any(thread.name == "horovod-autotune" for thread in threading.enumerate())
        going = hvd.broadcast_object(tuning, root_rank=0, name=f"going.{step}")
now = [now.fusion_threshold_bytes, now.cycle_time_ms]
report("tuned", rank=hvd.rank(), digest=digest.hexdigest(), now=now, seen=sorted(seen))
hvd.shutdown()
"""
_SHORT = "--autotune --autotune-warmup-samples 1 --autotune-bayes-opt-max-samples 5 --autotune-steps-per-sample 3"
_KEPT = re.compile(
    r"autotune: after (\d+) samples it (?:keeps|stays at) HOROVOD_FUSION_THRESHOLD=(\d+) HOROVOD_CYCLE_T"
)


def launched(options: str, environ: dict[str, str] | None = None) -> Ended:
    return run([*python("-m", "horovod.runner", "-np", 2), *options.split(), *python("-c", _PROGRAM)], environ)


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def by_file(place: Path) -> str:
    text = (
        "autotune:\n  enabled: true\n  warmup_samples: 1\n  bayes_opt_max_samples: 5\n  steps_per_sample: 3\n"
        f"  gaussian_process_noise: 0.2\n  log_file: {place}/log/a.csv\n"
    )
    (place / "job.yaml").write_text(text)
    return f"--config-file {place}/job.yaml"


def by_variables(place: Path) -> dict[str, str]:
    values = {"": "1", "_WARMUP_SAMPLES": "1", "_BAYES_OPT_MAX_SAMPLES": "5", "_STEPS_PER_SAMPLE": "3"}
    values.update(_GAUSSIAN_PROCESS_NOISE="0.2", _LOG=f"{place}/log/a.csv")
    return {f"HOROVOD_AUTOTUNE{name}": value for name, value in values.items()}


@pytest.mark.parametrize("way", ["flag", "file", "environment"])
def test_two_ranks_switch_and_stay_equal(way: str, tmp_path: Path) -> None:
    flags = f"{_SHORT} --autotune-gaussian-process-noise 0.2 --autotune-log-file {tmp_path}/log/a.csv"
    options = {"flag": flags, "file": by_file(tmp_path), "environment": ""}[way]
    ended = launched(options, by_variables(tmp_path) if way == "environment" else {})
    assert ended.code == 0, str(ended)
    one, other = ended.of("tuned")
    assert one["digest"] == other["digest"] and one["now"] == other["now"], str(ended)
    rows = rows_of(tmp_path / "log/a.csv")
    points = [(int(row["tensor_fusion_threshold"]), float(row["cycle_time_ms"])) for row in rows]
    # One of the warm-up, five different ones, and, unless the start is best, three of each of two and the result.
    assert len(rows) in (6, 13) and points[0] == points[1] == (128 << 20, 0.0) and len(set(points[1:6])) == 5
    assert all(float(row["score"]) > 0 and row["cache_enabled"] == "1" for row in rows)
    samples, threshold = _KEPT.search(ended.stderr).groups()  # type: ignore[union-attr]
    assert int(samples) == min(len(rows), 12) and one["now"][0] == int(threshold)
    assert set(points[2:6]) & {tuple(pair) for pair in other["seen"]}, "rank 1 went by what rank 0 tried"


def test_what_the_user_has_set_stays(tmp_path: Path) -> None:
    ended = launched(f"{_SHORT} --cycle-time-ms 0.5 --autotune-log-file {tmp_path}/a.csv")
    assert ended.code == 0, str(ended)
    assert {row["cycle_time_ms"] for row in rows_of(tmp_path / "a.csv")} == {"0.5"}
    assert len({row["tensor_fusion_threshold"] for row in rows_of(tmp_path / "a.csv")}) == 5
    assert all(pair[1] == 0.5 for event in ended.of("tuned") for pair in event["seen"])


def test_between_hosts_the_ways_are_tuned_too(tmp_path: Path) -> None:
    ended = run(on_hosts((2, 2), "-c", _PROGRAM, warm="numpy"), by_variables(tmp_path))
    assert ended.code == 0, str(ended)
    assert len({event["digest"] for event in ended.of("tuned")}) == 1, str(ended)
    rows = rows_of(tmp_path / "log/a.csv")
    assert rows[0]["hierarchical_allreduce"] == rows[0]["hierarchical_allgather"] == "1"
    assert {row["hierarchical_allreduce"] for row in rows} == {"0", "1"}


def test_steps_per_sample_are_counted(tmp_path: Path) -> None:
    # 200 steps are enough for two samples of the warm-up and one of the search with 50 steps each, and for no more.
    options = f"--autotune --autotune-steps-per-sample 50 --autotune-log-file {tmp_path}/a.csv"
    ended = launched(options, {"STEPS": "200"})
    assert ended.code == 0 and 2 <= len(rows_of(tmp_path / "a.csv")) <= 3, str(ended)
    few = launched(f"{_SHORT} --autotune-log-file {tmp_path}/b.csv", {"STEPS": "20"})
    taken = len(rows_of(tmp_path / "b.csv"))  # the thread that counts may be a step behind where cores are busy
    assert few.code == 0 and 1 <= taken <= 5, str(few)
    told = "the best were HOROVOD_FUSION_THRESHOLD=" if taken > 2 else ""
    assert "the job has ended after" in few.stderr and told in few.stderr, str(few)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("--autotune --cycle-time-ms 0 --fusion-threshold-mb 1", "it has nothing to tune: every parameter was set"),
        ("--autotune", "it has taken no sample: the job was too short"),
        ("--autotune --autotune-bayes-opt-max-samples 0", "after 0 samples it stays at HOROVOD_FUSION_THRESHOLD="),
    ],
)
def test_where_there_is_nothing_to_do_it_says_so(options: str, text: str) -> None:
    ended = launched(options, {"STEPS": "3"})
    assert ended.code == 0 and text in ended.stderr, str(ended)


def test_a_log_that_cannot_be_written_ends_the_job_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ended = launched(f"--autotune --autotune-log-file {tmp_path}/file/a.csv")
    assert ended.code != 0 and "cannot be written on rank 0: " in ended.stderr, str(ended)


def test_without_its_library_the_job_runs_and_rank_0_says_what_to_install() -> None:
    hidden = (
        "import importlib.util, sys; real = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *more: None if name == 'sklearn' else real(name, *more)\n"
    )
    words = [*python("-m", "horovod.runner", "-np", 2, "--autotune"), *python("-c", hidden + _PROGRAM)]
    ended = run(words)
    assert ended.code == 0 and ended.stderr.count("The job runs without autotune") == 1, str(ended)
