"""Contenders are measured alike: inputs begin at a cache line; what is not in place goes to new memory each time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from contenders.library import Library, Prepared, connect, zeros
from ranks.gate import Gate
from ranks.tasks import Tasks
from results_page import ROOT

MOVES = ("allgather", "alltoall", "reducescatter")

# Arguments: the folder of the benchmarks and a library. Two results that are kept at the same time.
TWICE = f"""
import sys

sys.path.insert(0, sys.argv[1])
from contenders.library import connect

library = connect(sys.argv[2])
for operation in {MOVES}:
    prepared = library.collective(operation, 8, "")
    one, other = [prepared.outputs(prepared.call())[0] for _ in range(2)]
    assert one.ctypes.data != other.ctypes.data, operation
    assert prepared.inputs[0].ctypes.data % 64 == 0, operation
library.close()
"""


@pytest.mark.parametrize("elems", [1, 15, 16, 17, 1 << 20])
def test_zeros_begin_at_a_cache_line(elems: int) -> None:
    kept = [zeros(elems) for _ in range(8)]
    for made in kept:
        assert made.shape == (elems,) and made.dtype == np.float32 and not made.any()
        assert made.ctypes.data % 64 == 0


@pytest.mark.parametrize("operation", MOVES)
def test_an_mpi_is_given_new_memory(operation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def move(source: np.ndarray, result: np.ndarray) -> None:
        result[:] = source

    names = ("Allreduce", "Bcast", "Allgather", "Alltoall", "Reduce_scatter_block")
    world = SimpleNamespace(rank=0, size=1, **dict.fromkeys(names, move))
    fake = SimpleNamespace(COMM_WORLD=world, IN_PLACE=None, Get_library_version=lambda: "an MPI")
    monkeypatch.setitem(sys.modules, "mpi4py", ModuleType("mpi4py"))
    monkeypatch.setattr(sys.modules["mpi4py"], "MPI", fake, raising=False)
    monkeypatch.delitem(sys.modules, "contenders.mpi", raising=False)
    prepared = connect("mpi").collective(operation, 8, "")
    one, other = (prepared.outputs(prepared.call())[0] for _ in range(2))
    assert one.ctypes.data != other.ctypes.data
    monkeypatch.delitem(sys.modules, "contenders.mpi")


@pytest.mark.parametrize("name", ["gloo", "horovod.torch", "horovod.numpy"])
def test_the_others_make_new_memory(name: str, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed.")
    environment = {**os.environ, "BENCH_RANK": "0", "BENCH_SIZE": "1", "BENCH_STORE": str(tmp_path / "store")}
    command = [sys.executable, "-c", TWICE, str(ROOT / "benchmarks"), name]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr


class Alone(Library):
    """One rank that gathers from itself; from the `faulty`th call on its results are those of the first call."""

    def __init__(self, faulty: int) -> None:
        self.rank, self.size, self.versions = 0, 1, "of the test"
        self._faulty = faulty

    def collective(self, operation: str, elems: int, variant: str) -> Prepared:
        source = zeros(elems)
        made: list[np.ndarray] = []

        def call() -> np.ndarray:
            made.append(source.copy())
            return made[-1 if len(made) < self._faulty else 0]

        return Prepared([source], call, lambda result: [result])


@pytest.mark.parametrize(("faulty", "right"), [(2, False), (4, False), (5, True)])
def test_a_result_is_that_of_its_own_call(faulty: int, right: bool, tmp_path: Path) -> None:
    tasks = Tasks(Alone(faulty), Gate(str(tmp_path / "gate"), 0, 1, crowded=True))
    answer = tasks.run({"task": "collective", "operation": "allgather", "elems": 4, "iterations": 4})
    assert (answer["wrong"] is None) == right and len(answer["times"]) == 4
