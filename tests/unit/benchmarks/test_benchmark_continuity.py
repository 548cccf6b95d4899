"""What a long training under faults says they have cost, from steps and faults that are made up."""

from __future__ import annotations

import pytest
from harness import continuity
from harness.continuity import Fault, Recovery, Step

# Steps of 1 s: 4 ranks, a fault at 3.5 s, 3 ranks from 8 s on, and all again from 10.5 s on.
STEPS = [
    *(Step(at_s, 0, 4) for at_s in (1.0, 2.0, 3.0)),
    *(Step(at_s, 1, 3) for at_s in (8.0, 9.0)),
    *(Step(at_s, 2, 4) for at_s in (10.5, 11.5)),
]


def test_a_fault_lasts_until_the_next_step_and_until_all_are_there() -> None:
    assert continuity.recoveries(STEPS, [Fault("kill", 2, 3.5)], 4) == [Recovery("kill", 4.5, 7.0)]


def test_a_step_that_was_on_its_way_is_no_recovery() -> None:
    """Of the epoch that the fault ends."""
    assert continuity.recoveries(STEPS, [Fault("kill", 2, 2.5)], 4) == [Recovery("kill", 5.5, 8.0)]


def test_what_never_came_back_is_said() -> None:
    faults = [Fault("cut", 2, 3.5), Fault("cut", 3, 11.0)]
    found = continuity.recoveries(STEPS, faults, 4)
    assert found == [Recovery("cut", 4.5, 7.0), Recovery("cut", None, None)]
    assert continuity.told(found) == [
        "cut: 2 times; the next step committed after 4.5 s (median 4.5, worst 4.5), never in 1 of 2; "
        "all ranks there again after 7.0 s (median 7.0, worst 7.0), never in 1 of 2"
    ]


def test_each_kind_is_told_and_all_together() -> None:
    lines = continuity.told([Recovery("kill", 1.0, 4.0), Recovery("stop", 2.0, 6.0), Recovery("kill", 3.0, 5.0)])
    assert [line.split(":")[0] for line in lines] == ["kill", "stop", "all faults"]
    assert "after 2.0 s (median 2.0, worst 3.0); all ranks there again after 4.5 s (median 4.5, worst 5.0)" in lines[0]
    assert "all faults: 3 times; the next step committed after 2.0 s" in lines[2]


def test_where_the_time_went() -> None:
    """Of 10.5 s: 4 and 0.5 in which nothing was committed, and of two steps the work of one rank in four."""
    still, missing = continuity.shares(STEPS, 4, step_s=1.0)
    assert still == pytest.approx(4.5 / 10.5)
    assert missing == pytest.approx(2 * 0.25 / 10.5)


def test_a_change_without_a_pause_costs_nothing() -> None:
    assert continuity.shares([Step(0.0, 0, 2), Step(0.9, 1, 2)], 2, step_s=1.0) == (0.0, 0.0)
