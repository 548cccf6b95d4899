"""The contract suite on TensorFlow: the cases of every adapter in eager mode, in functions and in graphs of TensorFlow
1, and what holds beside them."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any, Optional

import pytest
from cases import all_cases
from contract_job import run_job
from jobs import ROOT
from jobs.needs import needs

pytestmark = needs("tensorflow")

HERE = Path(__file__).parent
COLD = 3, "eager"  # jobs of so many ranks in this mode start them as a user does, the others warm


def _run(
    size: int, mode: str, parts: tuple[str, ...], folder: Path, environment: Optional[dict[str, str]] = None
) -> list[dict[str, Any]]:
    warm = "" if (size, mode) == COLD else "tensorflow"
    return run_job(size, mode, parts, folder, environment, "tensorflow_worker.py", warm)


def _facts_in(*scripts: str) -> int:
    """How many facts they list, without importing TensorFlow into the processes of the suite."""
    nodes = [node for script in scripts for node in ast.parse((HERE / script).read_text()).body]
    lists = [node.value for node in nodes if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "FACTS"]
    return sum(len(each.elts) for each in lists if isinstance(each, ast.Tuple))


def _check(reports: list[dict[str, Any]], size: int, parts: tuple[str, ...]) -> None:
    for report in reports:
        counts = report["counts"]
        if "cases" in parts:
            assert sum(counts["cases"].values()) == sum(1 for _ in all_cases(size)), report
            assert counts["cases"]["run"] > 500, report
        if "facts" in parts:
            assert counts["facts"]["run"] == _facts_in("tensorflow_surface.py", "tensorflow_facts.py"), report
        if "gradients" in parts:
            assert counts["gradients"]["run"] == _facts_in("tensorflow_gradients.py"), report


@pytest.mark.parametrize("size", [2, pytest.param(1, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)])
def test_eager(size: int, tmp_path: Path) -> None:
    parts = ("cases", "facts")
    _check(_run(size, "eager", parts, tmp_path), size, parts)


@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_gradients(size: int, tmp_path: Path) -> None:
    _check(_run(size, "eager", ("gradients",), tmp_path), size, ("gradients",))


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["function", "graph", "jit"])
def test_mode(mode: str, tmp_path: Path) -> None:
    _check(_run(2, mode, ("cases",), tmp_path), 2, ("cases",))


# Eager on three ranks is `test_eager`'s. Modes and numbers of ranks are independent, so one pair stands for the others.
MORE_RANKS = [("function", 3), ("graph", 3), ("jit", 3), *((mode, 4) for mode in ("eager", "function", "graph", "jit"))]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "size"),
    [pytest.param(*pair, marks=() if pair == MORE_RANKS[0] else pytest.mark.exhaustive) for pair in MORE_RANKS],
)
def test_mode_on_more_ranks(mode: str, size: int, tmp_path: Path) -> None:
    _check(_run(size, mode, ("cases",), tmp_path), size, ("cases",))


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["eager", "function", "graph"])
def test_on_a_gpu(mode: str, tmp_path: Path) -> None:
    """Operators placed on a GPU, whose memory the host cannot read. A stand-in, plugged into TensorFlow."""
    library = ROOT / "build" / "release" / "libfake_tensorflow_gpu.so"
    if not library.exists():
        pytest.skip(f"{library.name} is not built (make fakes)")
    environment = {"HVD_TEST_TENSORFLOW_GPU": str(library)}
    _check(_run(2, mode, ("cases",), tmp_path, environment), 2, ("cases",))
