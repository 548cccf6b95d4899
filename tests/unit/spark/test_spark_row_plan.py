"""Which rank reads which rows: every row once in a pass, equal steps on all ranks, whatever the row groups."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horovod._core.errors import InvalidArgumentError
from horovod.spark.common.row_plan import (
    Piece,
    RowGroup,
    batch_sizes,
    in_order_of,
    rows_of,
    share_of,
    steps_of,
    turns,
    windows,
)

COUNTS = st.lists(st.integers(0, 40), min_size=1, max_size=12)


def groups_of(counts: list[int]) -> list[RowGroup]:
    return [RowGroup(f"file{number // 2}", number % 2, rows, rows * 8) for number, rows in enumerate(counts)]


@given(COUNTS, st.integers(1, 7), st.integers(0, 5), st.booleans())
def test_every_row_is_read_once_in_a_pass(counts: list[int], size: int, number: int, shuffle: bool) -> None:
    groups = in_order_of(groups_of(counts), 3, number, shuffle)
    shares = [share_of(groups, rank, size) for rank in range(size)]
    read = Counter(
        (piece.group.file, piece.group.number, row)
        for share in shares
        for piece in share
        for row in range(piece.start, piece.stop)
    )
    there = {(group.file, group.number, row) for group in groups_of(counts) for row in range(group.rows)}
    assert set(read) == there and set(read.values()) <= {1}
    assert [sum(p.rows for p in share) for share in shares] == [rows_of(sum(counts), r, size) for r in range(size)]


@given(COUNTS, st.integers(1, 7), st.integers(1, 9))
def test_all_ranks_make_equal_steps_of_nearly_equal_batches(counts: list[int], size: int, batch: int) -> None:
    total = sum(counts)
    if total < size:
        with pytest.raises(InvalidArgumentError, match=rf"have {total} rows, and each of the {size} processes"):
            steps_of(total, size, batch, "rows to train with")
        return
    steps = steps_of(total, size, batch, "rows to train with")
    for rank in range(size):
        sizes = batch_sizes(rows_of(total, rank, size), steps)
        assert len(sizes) == steps and sum(sizes) == rows_of(total, rank, size)
        assert min(sizes) >= 1 and max(sizes) <= max(batch, 2) and max(sizes) - min(sizes) <= 1


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 9))
def test_epochs_follow_one_another_through_the_passes(steps: int, of_pass: int, epochs: int) -> None:
    seen = [
        turn.number * of_pass + batch
        for epoch in range(epochs)
        for turn in turns(epoch, steps, of_pass)
        for batch in range(turn.first, turn.last)
    ]
    assert seen == list(range(steps * epochs))


def test_ranks_draw_one_order_and_another_in_every_pass() -> None:
    groups = groups_of([1] * 20)
    orders = [in_order_of(groups, 7, number, True) for number in (0, 0, 1)]
    assert orders[0] == orders[1] != orders[2] and sorted(orders[2]) == groups
    assert in_order_of(groups, 8, 0, True) != orders[0] and in_order_of(groups, 7, 5, False) == groups


@given(COUNTS, st.one_of(st.none(), st.integers(1, 60)), st.integers(8, 400))
def test_windows_keep_their_bound(counts: list[int], most_rows: int | None, most_bytes: int) -> None:
    pieces = share_of(groups_of(counts), 0, 1)
    found = list(windows(pieces, most_rows, most_bytes))
    assert [piece for window in found for piece in window] == pieces
    for window in found:
        within = (
            sum(map(weight, window)) <= most_bytes if most_rows is None else sum(p.rows for p in window) <= most_rows
        )
        assert within or len(window) == 1


def test_windows_of_many_small_pieces() -> None:
    """A file of others may have very many row groups: a bound is kept without adding all up for each."""
    found = list(windows(share_of(groups_of([10] * 50_000), 0, 1), None, 1 << 20))
    assert len(found) == 4 and sum(map(len, found)) == 50_000


def weight(piece: Piece) -> int:
    return piece.size
