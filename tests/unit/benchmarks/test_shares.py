"""Shares of the best peer: which slices are compared, how sure a median is, and the table of them."""

from __future__ import annotations

from typing import Optional

import pytest
from harness import report
from harness.contest import Entry
from harness.row import Row
from harness.shares import Share, interval, ratios, share, table


def a_share(size_bytes: int, median: float, low: Optional[float] = None, operation: str = "allreduce") -> Share:
    return Share("a row", operation, size_bytes, 2, ["openmpi"], 9, median, low, low and 2.0)


def a_row(ours: list[float], **peers: list[float]) -> Row:
    entries = [Entry("ours (torch)", "ours", [[time_s] for time_s in ours])]
    entries += [Entry(name, "peer", [[time_s] for time_s in times]) for name, times in peers.items()]
    return Row("allreduce 1 KB", entries, operation="allreduce", size_bytes=1 << 10)


def test_neighbours_are_compared() -> None:
    assert ratios([[1.0, 2.0, 9.0], [4.0]], [[3.0, 4.0, 5.0], [2.0], [7.0]]) == [2.0, 0.5]


def test_a_difference_below_zero_is_no_pair() -> None:
    assert ratios([[-1.0], [2.0], [2.0]], [[1.0], [-1.0], [3.0]]) == [1.5]


# Of the numbers 1 to n, in the ranks that tables of the sign test give for 95 %.
@pytest.mark.parametrize(
    ("count", "low", "high"), [(7, 1, 7), (8, 1, 8), (9, 2, 8), (11, 2, 10), (15, 4, 12), (20, 6, 15), (21, 6, 16)]
)
def test_known_intervals(count: int, low: int, high: int) -> None:
    assert interval([float(number) for number in range(count, 0, -1)]) == (low, high)


def test_few_pairs_have_no_interval() -> None:
    assert interval([1.0] * 6) is None
    few = share([a_row([2.0] * 6, openmpi=[1.0] * 6)])
    assert few and str(few) == (
        "allreduce 1 KB: 0.50 of the best peer's speed (6 pairs, too few for an interval; openmpi)"
    )


def test_runs_count_together_each_against_its_own_best_peer() -> None:
    first = a_row([1.0] * 4, openmpi=[2.0] * 4, mpich=[3.0] * 4)
    second = a_row([2.0] * 3, openmpi=[4.0] * 3, mpich=[1.0] * 3)
    one = share([first, second])
    assert one and (one.peers, one.pairs, one.median) == (["openmpi", "mpich"], 7, 2.0)
    assert (one.low, one.high) == (0.5, 2.0) and one.slower
    assert "95 % interval 0.50 to 2.00, 7 pairs; openmpi, mpich" in str(one)


def test_without_a_peer_there_is_no_share() -> None:
    assert share([a_row([1.0])]) is None


@pytest.mark.parametrize(
    ("median", "low", "slower"), [(1.0, None, False), (0.99, None, True), (1.2, 0.97, False), (1.2, 0.96, True)]
)
def test_slower(median: float, low: float | None, slower: bool) -> None:
    assert a_share(4, median, low).slower is slower


def test_the_table_has_the_measured_cells() -> None:
    four = Share("r", "broadcast", 1 << 10, 4, ["mpich"], 7, 1.25, 1.1, 1.3)
    shares = [a_share(4, 1.5), four, a_share(1 << 20, 0.5), a_share(64 << 20, 3.0), a_share(0, 1.0, operation="")]
    assert table(shares) == [
        "| | 4 B | 1 MB | 4 ranks: 1 KB |",
        "|---|---|---|---|",
        "| allreduce | 1.50 | **0.50** |  |",
        "| broadcast |  |  | 1.25 |",
    ]
    assert table([]) == ["None measured."]


def test_the_report_lists_what_may_be_slower() -> None:
    unsure = a_row([1.0] * 7, openmpi=[0.9, 1.1, 1.1, 1.1, 1.1, 1.1, 1.2])
    text = report.markdown([[unsure]], report.About([], [], "2026-01-02", "abc"))
    slower = "- allreduce 1 KB: 1.10 of the best peer's speed (95 % interval 0.90 to 1.20, 7 pairs; openmpi)"
    assert slower in text and "| allreduce | **1.10** |" in text
    assert "None." in report.markdown([[a_row([1.0], openmpi=[2.0])]], report.About([], [], "2026-01-02", "abc"))
