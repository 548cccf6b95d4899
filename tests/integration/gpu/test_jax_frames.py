"""The core's handler for functions that JAX compiles for CUDA, on two ranks over the fake driver and the fake NCCL,
called by frames made as XLA makes them. Real XLA calls it in tests/gpu/jax_cuda.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs import Ended, horovodrun, run
from jobs.gpus import gpus

WORKER = Path(__file__).with_name("jax_frames_worker.py")
THROUGH_THE_HOST = {"HOROVOD_GPU_OPERATIONS": "GLOO"}


def job(part: str, directory: Path, **variables: str) -> Ended:
    """Two ranks, which end well."""
    ended = run(horovodrun(2, WORKER, part), gpus(directory / "libraries", **variables))
    assert ended.code == 0, str(ended)
    return ended


@pytest.mark.parametrize("variables", [{}, THROUGH_THE_HOST], ids=["NCCL", "host"])
@pytest.mark.parametrize("part", ["operations", "together"])
def test_results_are_right_in_the_order_of_the_stream(part: str, variables: dict[str, str], tmp_path: Path) -> None:
    ended = job(part, tmp_path, **variables)
    assert [told["faults"] for told in ended.of("right")] == [""] * 2, str(ended)


def test_nobody_waits_for_the_gpu(tmp_path: Path) -> None:
    ended = job("nobody_waits", tmp_path)
    assert [told["faults"] for told in ended.of("right")] == [""] * 2, str(ended)


# What fails -> words of the error on both ranks, and whether the job goes on.
FAILURES = {
    "apart": ("Horovod MismatchError: allreduce 'apart': rank 1 sent a tensor in host memory, rank 0 sent a tensor", 3),
    "unequal": ("Horovod InvalidArgumentError: 'rows' in a function compiled with XLA: the ranks' first dimensions", 3),
    "without": ("no GPU is in use on this rank", 0),
}


@pytest.mark.parametrize("part", FAILURES)
def test_failures_become_errors_of_xla(part: str, tmp_path: Path) -> None:
    words, then = FAILURES[part]
    ended = job(part, tmp_path)
    told = ended.of("failed")
    assert len(told) == 2 and all(words in one["why"] and one["then"] == then for one in told), str(ended)


def test_a_later_life_of_the_job_has_the_gpu_in_use(tmp_path: Path) -> None:
    ended = job("later_life", tmp_path)
    told = ended.of("worked")
    assert [one["sums"] for one in told] == [[3.0, 3.0]] * 2, str(ended)
    assert all(one["why"].startswith("Horovod NotInitializedError: ") for one in told), str(ended)
