"""What the GPU probes read from a profile."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[3] / "benchmarks" / "gpu"))

import overlap  # noqa: E402
from overlap import Work  # noqa: E402


def test_reduction_beside_backward_is_counted_once_and_to_its_end() -> None:
    work = [
        Work("Memcpy HtoD (Pageable -> Device)", 0, 5),  # the batch, before backward
        Work("sgemm", 10, 30),
        Work("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 20, 26),
        Work("pack_f32", 25, 28),  # at the same time
        Work("Memcpy DtoH (Device -> Pinned)", 29, 36),  # ends behind it
        Work("void at::native::multi_tensor_apply_kernel<...>", 40, 50),
    ]
    assert overlap.beside_backward(work, 10) == (9, 15)


def test_without_backward_nothing_lies_beside_it() -> None:
    assert overlap.beside_backward([Work("pack_f32", 3, 5)], 1) == (0, 2)
    assert overlap.beside_backward([], 1) == (0, 0)


def test_waits_are_those_for_the_device() -> None:
    calls = ["cudaStreamSynchronize", "cudaEventSynchronize", "cuCtxSynchronize", "cudaLaunchKernel"]
    assert overlap.waits([*calls, "cudaEventRecord", "cudaDeviceSynchronize"]) == 4
