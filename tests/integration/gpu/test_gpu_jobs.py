"""Jobs whose ranks have GPUs, over the fake driver and the fake NCCL: what ends badly, what differs between ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs import Ended, horovodrun, run
from jobs.gpus import gpus

WORKER = Path(__file__).with_name("gpu_worker.py")
WARNING = "Tensors on GPUs are copied to pinned host memory and back"


def job(part: str, directory: Path, **variables: str) -> Ended:
    """Two ranks."""
    return run(horovodrun(2, WORKER, part), gpus(directory / "libraries", **variables))


def test_a_killed_rank_ends_what_its_peer_has_on_the_gpu(tmp_path: Path) -> None:
    ended = job("killed", tmp_path)
    (failed,) = ended.of("failed")
    assert "rank 1" in failed["why"] and "died" in failed["why"], str(ended)
    assert failed["free_s"] < 5, str(ended)


def test_a_tensor_on_a_gpu_does_not_meet_one_in_host_memory(tmp_path: Path) -> None:
    ended = job("apart", tmp_path)
    assert ended.code == 0, str(ended)
    for told in ended.of("mismatch"):
        assert "rank 1 sent a tensor in host memory, rank 0 sent a tensor on a GPU" in told["why"], str(ended)
        assert told["then"] == 3.0
    assert len(ended.of("mismatch")) == 2, str(ended)


# What is different on one rank or on both -> what the warning says; None: there is none, NCCL moves them.
WAYS = {
    "nccl": ({}, None),
    "no NCCL on one rank": ({"HVD_TEST_ON_RANK_1": "HOROVOD_NCCL_PATH=/nowhere"}, "rank 1: "),
    "another version": (
        {"HVD_TEST_ON_RANK_1": "FAKE_NCCL_VERSION=21805"},
        "rank 0 has NCCL 2.28.9 and rank 1 has 2.18.5",
    ),
    "one GPU": ({"HVD_TEST_GPU": "0"}, "rank 0 and rank 1 use one GPU"),
    "the host": ({"HOROVOD_GPU_OPERATIONS": "GLOO"}, "HOROVOD_GPU_OPERATIONS=GLOO asks for the way through the host"),
}


@pytest.mark.parametrize("way", WAYS)
def test_ranks_agree_on_the_way_and_say_why_not(way: str, tmp_path: Path) -> None:
    variables, why = WAYS[way]
    ended = job("works", tmp_path, **variables)
    assert ended.code == 0, str(ended)
    for worked in ended.of("worked"):
        assert worked["sums"] == [3.0, 3.0] and worked["faults"] == "" and worked["idle_s"] < 0.02, str(ended)
    assert len(ended.of("worked")) == 2, str(ended)
    # Once in each life of the job.
    assert ended.output.count(WARNING) == (0 if why is None else 2), str(ended)
    assert why is None or why in ended.output, str(ended)


def test_memory_of_operations_on_their_way_is_not_used_too_early(tmp_path: Path) -> None:
    ended = job("let_go", tmp_path)
    assert ended.code == 0, str(ended)
    assert [(told["sum"], told["faults"]) for told in ended.of("let go")] == [(3.0, "")] * 2, str(ended)


def test_a_communicator_that_cannot_be_made_is_told_in_nccls_words(tmp_path: Path) -> None:
    ended = job("refused", tmp_path, HVD_TEST_ON_RANK_1="FAKE_NCCL_FAIL=ncclCommInitRankConfig:3")
    told = [event["why"] for event in ended.of("refused")]
    assert len(told) == 2 and any("ncclCommInitRankConfig of NCCL 2.28.9 failed" in why for why in told), str(ended)


def test_a_way_that_the_core_has_not_is_refused(tmp_path: Path) -> None:
    ended = job("refused", tmp_path, HOROVOD_GPU_OPERATIONS="MPI")
    told = [event["why"] for event in ended.of("refused")]
    assert len(told) == 2 and all("HOROVOD_GPU_OPERATIONS=MPI cannot be honoured" in why for why in told), str(ended)
