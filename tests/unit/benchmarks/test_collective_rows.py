"""Which rows of collectives there are, by operation, size and number of ranks, and what is said of them."""

from __future__ import annotations

import io
import os

import pytest
from harness.contest import Contest, Effort
from harness.plan import Plan
from harness.progress import Progress
from harness.row import Row
from rows import collectives

EFFORT = Effort(1, 0.1)


def plain_rows(ranks: int, rows: str = "few") -> list[Row]:
    plan = Plan(rows, EFFORT, None, Progress(io.StringIO()), None)
    contest = Contest([], ranks, EFFORT)  # without jobs: rows without numbers
    return list((collectives.other_rows if ranks == 2 else collectives.crowded_rows)(contest, plan))


@pytest.mark.parametrize(("ranks", "count"), [(2, 4), (4, 5), (8, 5)])
def test_every_operation_has_every_size_that_it_can_have(ranks: int, count: int) -> None:
    by_operation: dict[str, list[int]] = {}
    for row in plain_rows(ranks):
        assert row.ranks == ranks and row.name.endswith(f", {ranks} ranks") == (ranks > 2)
        by_operation.setdefault(row.operation, []).append(row.size_bytes)
    assert len(by_operation) == count
    for operation, sizes in by_operation.items():
        small = [] if operation in ("alltoall", "reducescatter") else [4]
        assert sizes == [*small, 1 << 10, 64 << 10, 1 << 20, 16 << 20]


def test_the_notes_say_what_is_allocated_and_what_is_crowded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2})
    for ranks in (2, 4):
        for row in plain_rows(ranks):
            assert ("new memory" in row.note) == (row.operation not in ("allreduce", "broadcast"))
            assert ("More ranks than cores" in row.note) == (ranks == 4)


def test_a_smoke_test_has_a_row_for_each() -> None:
    assert [row.size_bytes for row in plain_rows(4, "smoke")] == [64 << 10] * 5
