"""The table of the wheel's operations (tools/test_wheel.py, tools/wheel_cells.py)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))

table_of = pytest.importorskip("test_wheel", exc_type=ImportError, reason="A module of the tools is missing.").table
OPERATIONS = ("allreduce", "allgather", "broadcast", "alltoall", "reducescatter", "step")


def printed(ways: tuple[str, ...]) -> str:
    cells = [(way, ranks, operation) for way in ways for ranks in (1, 2) for operation in OPERATIONS]
    return "".join(f"[0]<stdout>:cell: {way}, {ranks}, {operation}: right\n" for way, ranks, operation in cells)


def test_every_cell_is_in_the_table() -> None:
    head, *lines = table_of(printed(("XLA", "Keras on jax")), ["XLA", "Keras on jax"]).splitlines()
    assert head.split() == ["way", "ranks", *OPERATIONS]
    assert [line.split("  ")[0] for line in lines] == ["XLA", "XLA", "Keras on jax", "Keras on jax"]
    assert all(line.count("right") == len(OPERATIONS) for line in lines)


def test_a_cell_that_is_missing_is_an_error() -> None:
    text = printed(("XLA",)).replace("XLA, 2, alltoall: right", "")
    with pytest.raises(SystemExit, match="XLA on 2 ranks has not come to its end"):
        table_of(text, ["XLA"])
