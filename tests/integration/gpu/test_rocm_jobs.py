"""Jobs whose ranks have GPUs of AMD's, over the fakes of HIP, its compiler and RCCL: what differs from CUDA's."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs import Ended, horovodrun, run
from jobs.gpus import rocm

WORKER = Path(__file__).with_name("gpu_worker.py")
WARNING = "Tensors on GPUs are copied to pinned host memory and back for every collective, and not moved by RCCL"


def job(part: str, directory: Path, without: str = "", **variables: str) -> Ended:
    """Two ranks."""
    return run(horovodrun(2, WORKER, part), rocm(directory / "libraries", without, **variables))


# A library that is missing, what is different on one rank or on both -> what the warning says; None: there is none.
WAYS = {
    "rccl": ("", {}, None),
    "GPUs without numbers of their own": ("", {"FAKE_HIP_NO_UUID": "1"}, None),
    "another version": (
        "",
        {"HVD_TEST_ON_RANK_1": "FAKE_NCCL_VERSION=22003"},
        "rank 0 has RCCL 2.22.3 and rank 1 has 2.20.3",
    ),
    "one GPU": ("", {"HVD_TEST_GPU": "0"}, "ranks 0 and 1 use one GPU (number 0, "),
    "no compiler": ("libhiprtc.so.6", {}, "HIP's runtime compiler, libhiprtc.so, is missing beside HIP's library"),
    "a compiler that fails on one rank": (
        "",
        {"HVD_TEST_ON_RANK_1": "FAKE_HIPRTC_LOG=no such architecture"},
        "hiprtcCompileProgram failed: HIPRTC_ERROR_COMPILATION, no such architecture",
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_ranks_agree_on_the_way_and_say_why_not(way: str, tmp_path: Path) -> None:
    without, variables, why = WAYS[way]
    ended = job("works", tmp_path, without, **variables)
    assert ended.code == 0, str(ended)
    for worked in ended.of("worked"):
        assert worked["sums"] == [3.0, 3.0] and worked["faults"] == "", str(ended)
    assert len(ended.of("worked")) == 2, str(ended)
    assert ended.output.count(WARNING) == (0 if why is None else 2), str(ended)
    assert why is None or why in ended.output, str(ended)


def test_a_killed_rank_ends_what_its_peer_has_on_the_gpu(tmp_path: Path) -> None:
    ended = job("killed", tmp_path)
    (failed,) = ended.of("failed")
    assert "rank 1" in failed["why"] and "died" in failed["why"] and failed["free_s"] < 5, str(ended)
