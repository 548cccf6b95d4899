"""Jobs whose ranks have GPUs, over the fake driver and the fake NCCL: what ends badly, what differs between ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs import Ended, horovodrun, on_hosts, run
from jobs.gpus import gpus

WORKER = Path(__file__).with_name("gpu_worker.py")
WARNING = "Tensors on GPUs are copied to pinned host memory and back"
IN_TWO_LEVELS = "by NCCL inside the hosts, then between them"


def job(part: str, directory: Path, **variables: str) -> Ended:
    """Two ranks."""
    return run(horovodrun(2, WORKER, part), gpus(directory / "libraries", **variables))


def job_on(hosts: tuple[int, ...], part: str, directory: Path, **variables: str) -> Ended:
    """So many ranks on each host."""
    return run(on_hosts(hosts, WORKER, part), gpus(directory / "libraries", HOROVOD_LOG_LEVEL="trace", **variables))


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
        {"HVD_TEST_ON_RANK_1": "FAKE_NCCL_VERSION=22005"},
        "rank 0 has NCCL 2.28.9 and rank 1 has 2.20.5",
    ),
    "an old one": ({"HVD_TEST_ON_RANK_1": "FAKE_NCCL_VERSION=21903"}, "is NCCL 2.19.3; 2.20.0 or later is needed"),
    "calls that wait": (
        {"HVD_TEST_ON_RANK_1": "NCCL_COMM_BLOCKING=1"},
        "rank 1: NCCL_COMM_BLOCKING=1 is set, which has NCCL's calls wait for other ranks; unset it",
    ),
    "one of several GPUs": (
        {"HVD_TEST_GPU": "1"},
        "ranks 0 and 1 use one GPU (number 1, one of the 8 that the driver shows to rank 0), which NCCL refuses; "
        "give each rank its own GPU",
    ),
    "the only GPU": (
        {"HVD_TEST_GPU": "0", "FAKE_CUDA_DEVICES": "1"},
        "ranks 0 and 1 use one GPU (number 0, the only one that the driver shows to rank 0), which NCCL refuses; "
        "start no more ranks on a host than it has GPUs",
    ),
    "parts of one GPU": ({"FAKE_CUDA_MIG": "1"}, "ranks 0 and 1 use parts of one GPU (MIG)"),
    "streams": ({"HOROVOD_NUM_NCCL_STREAMS": "4", "HVD_TEST_ON_RANK_1": "HOROVOD_NUM_NCCL_STREAMS=2"}, None),
    "the host": ({"HOROVOD_GPU_OPERATIONS": "GLOO"}, "HOROVOD_GPU_OPERATIONS=GLOO asks for copies through the host"),
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


OTHER_VERSIONS = {f"HVD_TEST_ON_RANK_{rank}": "FAKE_NCCL_VERSION=22005" for rank in (2, 3)}

# What is asked for, and what the ranks on the second host have -> what is said; None: nothing.
TWO_LEVELS = {
    "asked for": ({"HOROVOD_HIERARCHICAL_ALLREDUCE": "1"}, None),
    "torus": ({"HOROVOD_TORUS_ALLREDUCE": "1"}, None),
    "other versions": (
        OTHER_VERSIONS,
        "are reduced and broadcast by NCCL inside each host only, and through pinned memory between the hosts",
    ),
}


@pytest.mark.parametrize("why", TWO_LEVELS)
def test_hosts_reduce_in_two_levels(why: str, tmp_path: Path) -> None:
    variables, words = TWO_LEVELS[why]
    ended = job_on((2, 2), "works", tmp_path, **variables)
    assert ended.code == 0, str(ended)
    for worked in ended.of("worked"):
        assert worked["sums"] == [10.0, 10.0] and worked["faults"] == "" and worked["idle_s"] < 0.02, str(ended)
    assert len(ended.of("worked")) == 4, str(ended)
    assert ended.output.count(IN_TWO_LEVELS) == 4 * 2, str(ended)
    assert WARNING not in ended.output and (words is None or words in ended.output), str(ended)


def test_hosts_broadcast_in_two_levels(tmp_path: Path) -> None:
    ended = job_on((2, 2), "broadcasts", tmp_path, **OTHER_VERSIONS)
    assert ended.code == 0, str(ended)
    told = ended.of("broadcast")
    assert [one["values"] for one in told] == [[[1.0], [2.0], [3.0], [4.0]]] * 4, str(ended)
    assert all(one["faults"] == "" for one in told), str(ended)
    assert ended.output.count(IN_TWO_LEVELS) == 4 * 4 and WARNING not in ended.output, str(ended)


def test_hosts_broadcast_through_the_host_if_two_levels_are_forbidden(tmp_path: Path) -> None:
    ended = job_on((2, 2), "broadcasts", tmp_path, HOROVOD_HIERARCHICAL_ALLGATHER="0", **OTHER_VERSIONS)
    assert [one["values"] for one in ended.of("broadcast")] == [[[1.0], [2.0], [3.0], [4.0]]] * 4, str(ended)
    assert IN_TWO_LEVELS not in ended.output, str(ended)
    assert "are reduced by NCCL inside each host only" in ended.output, str(ended)


def test_a_killed_root_ends_a_broadcast_in_two_levels(tmp_path: Path) -> None:
    ended = job_on((2, 2), "killed_in_a_broadcast", tmp_path, **OTHER_VERSIONS)
    failed = ended.of("failed")
    assert len(failed) == 3 and all("rank 3" in one["why"] for one in failed), str(ended)


def test_two_levels_that_cannot_be_had_are_said(tmp_path: Path) -> None:
    ended = job_on((2, 1), "works", tmp_path, HOROVOD_HIERARCHICAL_ALLREDUCE="1")
    assert [worked["sums"] for worked in ended.of("worked")] == [[6.0, 6.0]] * 3, str(ended)
    assert IN_TWO_LEVELS not in ended.output and "although two levels are asked for" in ended.output, str(ended)
    assert "rank 0 is on a host with 2 members and rank 2 on one with 1" in ended.output, str(ended)


def test_a_killed_rank_ends_both_levels(tmp_path: Path) -> None:
    """Rank 0 waits for NCCL inside its host, ranks 2 and 3 for their own kernels."""
    ended = job_on((2, 2), "killed_in_two_levels", tmp_path, HOROVOD_HIERARCHICAL_ALLREDUCE="1")
    failed = ended.of("failed")
    assert len(failed) == 3 and all("rank 1" in one["why"] for one in failed), str(ended)
    assert all(one["free_s"] < 5 for one in failed), str(ended)


def test_a_set_in_which_a_rank_used_its_gpu_late_goes_by_nccl_then(tmp_path: Path) -> None:
    ended = job("late", tmp_path)
    assert ended.code == 0, str(ended)
    told = {event["rank"]: (event["sums"], event["communicators"]) for event in ended.of("late")}
    assert told == {0: ([1.5, 3.0], [0, 2]), 1: ([0.0, 3.0], [0, 2])}, str(ended)
    assert ended.output.count(WARNING) == 1, str(ended)


@pytest.mark.parametrize("way", ["NCCL", "GLOO"])
def test_a_gpu_may_be_busy_for_longer_than_a_process(way: str, tmp_path: Path) -> None:
    ended = job("busy", tmp_path, HOROVOD_GPU_OPERATIONS=way, HOROVOD_GLOO_TIMEOUT_SECONDS="1")
    assert [told["sum"] for told in ended.of("busy")] == [3.0, 3.0], str(ended)


def test_a_rank_may_be_late_for_one_set_because_of_its_gpu_in_another(tmp_path: Path) -> None:
    variables = gpus(tmp_path / "libraries", HOROVOD_GLOO_TIMEOUT_SECONDS="1", HOROVOD_DYNAMIC_PROCESS_SETS="1")
    ended = run(horovodrun(3, WORKER, "busy_elsewhere"), variables)
    assert sorted(told["results"] for told in ended.of("busy elsewhere")) == [[2.0], [3.0], [3.0, 2.0]], str(ended)


def test_memory_of_operations_on_their_way_is_not_used_too_early(tmp_path: Path) -> None:
    ended = job("let_go", tmp_path)
    assert ended.code == 0, str(ended)
    assert [(told["sum"], told["faults"]) for told in ended.of("let go")] == [(3.0, "")] * 2, str(ended)


def test_a_communicator_that_cannot_be_made_fails_in_nccls_words(tmp_path: Path) -> None:
    ended = job("refused", tmp_path, HVD_TEST_ON_RANK_1="FAKE_NCCL_FAIL=ncclCommInitRankConfig:3")
    told = [event["why"] for event in ended.of("refused")]
    assert len(told) == 2 and any("ncclCommInitRankConfig of NCCL 2.28.9 failed" in why for why in told), str(ended)


def test_a_way_that_the_core_has_not_is_refused(tmp_path: Path) -> None:
    ended = job("refused", tmp_path, HOROVOD_GPU_OPERATIONS="MPI")
    told = [event["why"] for event in ended.of("refused")]
    assert len(told) == 2 and all("HOROVOD_GPU_OPERATIONS=MPI is not supported" in why for why in told), str(ended)
