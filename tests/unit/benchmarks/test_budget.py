"""What is measured in a given time, and the line that says so."""

from __future__ import annotations

import io
import math

import pytest
from harness import budget
from harness.budget import EVERYTHING, GROUPS, SMOKE
from harness.contest import Contest, Effort, Part
from harness.progress import Progress, clock_words
from harness.shares import LEAST_PAIRS

TIMED = [budget.START, *(name for name in GROUPS if name != "sends")]


@pytest.mark.parametrize("minutes", [3, 5, 8, 12, 20, 60])
def test_what_is_chosen_fits(minutes: float) -> None:
    assert budget.total_s(TIMED, budget.choose(60 * minutes, TIMED)) <= 60 * minutes


def test_more_time_never_means_less() -> None:
    chosen = [budget.choose(60 * minutes, TIMED) for minutes in range(1, 61)]
    lengths = [budget.total_s(TIMED, extent) for extent in chosen]
    assert lengths == sorted(lengths)
    assert chosen[-1] == EVERYTHING and chosen[0] != SMOKE


def test_five_minutes_suffice_for_intervals() -> None:
    assert min(budget.choose(0.92 * 300, TIMED).rounds, EVERYTHING.rounds) >= LEAST_PAIRS


def test_fewer_groups_are_measured_longer() -> None:
    few = ["allreduce"]
    assert budget.total_s(few, budget.choose(300, few)) > budget.total_s(few, budget.choose(300, TIMED))


def test_when_nothing_fits_the_least_is_taken() -> None:
    least = budget.choose(1, TIMED)
    assert least.runs == 1 and least.rows == "few"


def test_shares_use_up_the_time_that_is_left() -> None:
    extent, left_s, taken = budget.choose(300, TIMED), 100.0, []
    for number, name in enumerate(TIMED):
        taken.append(budget.share_s(left_s, name, TIMED[number + 1 :], extent))
        left_s -= taken[-1]
    assert all(share > 0 for share in taken) and left_s == pytest.approx(0)


def test_shares_without_a_limit_or_without_time() -> None:
    assert budget.share_s(math.inf, "idle", ["core"], EVERYTHING) == math.inf
    assert budget.share_s(-3.0, "idle", ["core"], EVERYTHING) == 0


def test_a_slow_machine_lengthens_what_remains() -> None:
    planned_s = budget.estimate_s("idle", EVERYTHING)
    rest_s = budget.estimate_s("core", EVERYTHING)
    assert budget.remaining_s(0.0, [], ["core"], EVERYTHING) == rest_s
    assert budget.remaining_s(3 * planned_s, ["idle"], ["core"], EVERYTHING) == pytest.approx(3 * rest_s)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "written"),
    [
        (io.StringIO(), "first\nallreduce 4 B (about 1:05 left)\nidle (about 1:05 left)\n"),
        (Terminal(), "\r\x1b[Kfirst\r\x1b[Kallreduce 4 B (about 1:05 left)\r\x1b[Kidle (about 1:05 left)\r\x1b[K"),
    ],
    ids=["file", "terminal"],
)
def test_the_line(stream: io.StringIO, written: str) -> None:
    progress = Progress(stream, clock=lambda: 10.0)
    progress.show("first")  # nobody knows yet how long it takes
    progress.begin(65, 5)
    progress.show("allreduce 4 B")
    progress.show("idle")
    progress.clear()
    assert stream.getvalue() == written


def test_a_group_has_its_time_and_no_more() -> None:
    now = 10.0
    progress = Progress(io.StringIO(), clock=lambda: now)
    assert not progress.over()
    progress.begin(65, 5)
    now = 14.9
    assert not progress.over()
    now = 15.0
    assert progress.over()


def test_a_row_without_time_says_so() -> None:
    progress = Progress(io.StringIO(), clock=lambda: 0.0)
    progress.begin(0, 0)
    (entry,) = Contest([], 2, Effort(1, 0.1), progress).measure([Part("ours", "ours", "ours", {})])
    assert entry.void == "left out: its time was over"


@pytest.mark.parametrize(("seconds", "words"), [(0, "0:00"), (-5, "0:00"), (59.6, "1:00"), (605, "10:05")])
def test_minutes_and_seconds(seconds: float, words: str) -> None:
    assert clock_words(seconds) == words
