"""The contract suite on TensorFlow: the cases of every adapter in eager mode, in functions and in graphs of TensorFlow
1, and what holds beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cases import all_cases
from contract_job import run_job
from jobs import ROOT

pytest.importorskip("tensorflow", reason="TensorFlow is not installed.")
from tensorflow_facts import FACTS  # noqa: E402
from tensorflow_gradients import FACTS as GRADIENTS  # noqa: E402
from tensorflow_surface import FACTS as SURFACE  # noqa: E402

_SCRIPT = "tensorflow_worker.py"


def _check(reports: list[dict[str, Any]], size: int, parts: tuple[str, ...]) -> None:
    for report in reports:
        counts = report["counts"]
        if "cases" in parts:
            assert sum(counts["cases"].values()) == sum(1 for _ in all_cases(size)), report
            assert counts["cases"]["run"] > 500, report
        if "facts" in parts:
            assert counts["facts"]["run"] == len(SURFACE + FACTS), report
        if "gradients" in parts:
            assert counts["gradients"]["run"] == len(GRADIENTS), report


@pytest.mark.parametrize("size", [2, pytest.param(1, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)])
def test_eager(size: int, tmp_path: Path) -> None:
    parts = ("cases", "facts")
    _check(run_job(size, "eager", parts, tmp_path, script=_SCRIPT), size, parts)


@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_gradients(size: int, tmp_path: Path) -> None:
    _check(run_job(size, "eager", ("gradients",), tmp_path, script=_SCRIPT), size, ("gradients",))


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["function", "graph", "jit"])
def test_mode(mode: str, tmp_path: Path) -> None:
    _check(run_job(2, mode, ("cases",), tmp_path, script=_SCRIPT), 2, ("cases",))


@pytest.mark.slow
@pytest.mark.parametrize("size", [3, pytest.param(4, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("mode", ["eager", "function", "graph", "jit"])
def test_mode_on_more_ranks(mode: str, size: int, tmp_path: Path) -> None:
    _check(run_job(size, mode, ("cases",), tmp_path, script=_SCRIPT), size, ("cases",))


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["eager", "function", "graph"])
def test_on_a_gpu(mode: str, tmp_path: Path) -> None:
    """Operators placed on a GPU, whose memory the host cannot read. A stand-in, plugged into TensorFlow."""
    library = ROOT / "build" / "release" / "libfake_tensorflow_gpu.so"
    if not library.exists():
        pytest.skip(f"{library.name} is not built (make fakes)")
    environment = {"HVD_TEST_TENSORFLOW_GPU": str(library)}
    _check(run_job(2, mode, ("cases",), tmp_path, environment, _SCRIPT), 2, ("cases",))
