"""The probe of the engine on a GPU machine runs, and gives right results, also over the fakes: it must not fail on its
first real day for a silly reason."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from jobs.gpus import gpus
from jobs.variables import ROOT


def test_the_probe_of_the_engine(tmp_path: Path) -> None:
    if not any(map(shutil.which, ("cc", "gcc", "clang"))):
        pytest.skip("no C compiler, which the probe needs")
    rehearsal = {"HVD_PROBE_ROUNDS": "2", "HVD_PROBE_LARGEST": "100000"}
    ended = subprocess.run(
        [sys.executable, "benchmarks/gpu/run_all.py", "--only", "engine", "--output", tmp_path / "report"],
        cwd=ROOT,
        env={**os.environ, **gpus(tmp_path / "libraries"), **rehearsal},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    alone, two, staged, own_time = json.loads((tmp_path / "report" / "gpu.json").read_text())
    for table, right in ((alone, 1), (two, 8), (staged, 1)):
        words = [row[-1] for row in table["rows"]]
        assert words.count("right") == right and "WRONG" not in words, table["markdown"]
        assert table["note"] == "Exit code 0.", table["note"]
    # The core waits for the device nowhere.
    assert [table["rows"][-1][-1] for table in (two, staged)] == ["0", "0"], ended.stdout
    assert "Tensors on GPUs are copied" not in two["note"]
    assert own_time["note"] == "Exit code 0.", own_time["note"]
    calls = {row[0]: float(row[2] or 0) for row in own_time["rows"]}
    assert calls["blocking, host"] < 3 and calls["blocking, GPU"] > 5, own_time["markdown"]


CONTRACT = ("tests/contract/worker.py", "--target", "gpu")


@pytest.mark.parametrize("way", ["nccl", "staged"])
def test_ranks_that_share_a_gpu_fail_unless_they_go_by_the_way_that_is_asked_for(way: str, tmp_path: Path) -> None:
    if not any(map(shutil.which, ("cc", "gcc", "clang"))):
        pytest.skip("no C compiler, which ranks need to be taken for members of NCCL")
    path = os.pathsep.join(str(ROOT / part) for part in ("python", "tests"))
    asked = {**gpus(tmp_path / "libraries"), "HVD_TEST_GPU": "0", "HVD_TEST_WAY": "nccl", "PYTHONPATH": path}
    members = ["tests/gpu/nccl_members.py"] if way == "nccl" else []
    ended = subprocess.run(
        [sys.executable, "-m", "horovod.runner", "-np", "2", sys.executable, *members, *CONTRACT]
        + ["--directory", tmp_path, "join"],
        cwd=ROOT,
        env={**os.environ, **asked},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ended.returncode == 0) is (way == "nccl"), ended.stdout + ended.stderr
    assert ("nothing went by nccl" in ended.stdout) is (way != "nccl"), ended.stdout


BEFORE_THE_DRIVER = """
import ctypes
import other_gpu
library = other_gpu.use_for_the_core(6)
number = ctypes.create_string_buffer(16)
library.cuInit(0), library.cuDeviceGetUuid_v2(number, 1)
library.cuStreamSynchronize(None), library.cuCtxSynchronize(), library.cuEventQuery(None)
print(list(number.raw[:3]), library.waits_of_the_core(), library.fake_cuda_faults())
"""


def test_the_library_before_the_driver_counts_waits_and_numbers_gpus(tmp_path: Path) -> None:
    if not any(map(shutil.which, ("cc", "gcc", "clang"))):
        pytest.skip("no C compiler, which the library needs")
    ended = subprocess.run(
        [sys.executable, "-c", BEFORE_THE_DRIVER],
        cwd=ROOT / "benchmarks" / "gpu",
        env={**os.environ, **gpus(tmp_path / "libraries"), "PYTHONPATH": str(ROOT / "python")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.stdout.split() == ["[7,", "1,", "0]", "2", "0"], ended.stdout + ended.stderr
