"""The benchmark between hosts: what must cross a link, and the line of a row."""

from __future__ import annotations

import pytest
from harness.contest import Entry
from harness.line import Line
from harness.row import Row
from over_hosts import words_of
from rows import between_hosts

LINE = Line(one_way=8e8, both_ways=7e8)  # 100 MB a second


@pytest.mark.parametrize(
    ("operation", "two", "three", "two_by_two"),
    [
        ("allreduce", 60, 80, 60),
        ("broadcast", 60, 60, 60),
        ("allgather", 60, 120, 120),
        ("reducescatter", 30, 40, 30),
        ("alltoall", 30, 40, 60),
    ],
)
def test_bytes_that_must_cross_a_link(operation: str, two: float, three: float, two_by_two: float) -> None:
    found = [between_hosts.least_bytes(operation, 60, *shape) for shape in ((2, 1), (3, 1), (2, 2))]
    assert found == pytest.approx([two, three, two_by_two])


def test_the_line_of_a_row() -> None:
    entries = [
        Entry("ours (numpy)", "ours", [[0.8], [0.8]]),
        Entry("openmpi", "peer", [[1.0], [1.0]]),
        Entry("torch gloo", "peer", [[1.2], [1.2]]),
    ]
    row = Row("allreduce 64 MB", entries, operation="allreduce", size_bytes=64 * 10**6)
    assert words_of(row, LINE, 2, 1) == "| allreduce 64 MB | 800,000 | 1,000,000 | openmpi | 1.25 | 0.800 | - |"


def test_what_is_slower_or_missing_shows() -> None:
    entries = [Entry("ours (numpy)", "ours", [[2e-5]]), Entry("openmpi", "peer", [[1e-5]])]
    row = Row("allreduce 4 B", entries, operation="allreduce", size_bytes=4)
    assert words_of(row, LINE, 2, 1) == "| allreduce 4 B | 20.0 | 10.0 | openmpi | **0.50** | - | - |"
    entries[0].void = "failed"
    assert words_of(row, LINE, 2, 1) == "| allreduce 4 B | - | 10.0 | openmpi | - | - | - |"
