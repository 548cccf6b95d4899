"""Rows, the slowest rank and advice, from made-up figures."""

from __future__ import annotations

import pytest
from made_up import SECOND, a_rank, rows_of

from horovod.runner.live.advice import advice
from horovod.runner.live.figures import Reading
from horovod.runner.live.straggler import sentence, straggler
from horovod.runner.live.table import earlier, rows


def test_a_row_is_what_happened_between_two_readings() -> None:
    before, now = a_rank(0, 0.1), a_rank(0, 0.1, wall_ns=20 * SECOND, blocked_ns=6 * SECOND, steps=150)
    (row,) = rows({0: Reading(now, 0.0)}, {0: Reading(before, 0.0)}, {0: "alpha"})
    assert (row.host, row.seconds, row.steps, row.per_second(row.steps)) == ("alpha", 10.0, 50, 5.0)
    assert row.waiting == pytest.approx(0.5)
    assert row.computing == pytest.approx(0.5)
    assert row.tensors == 0


def test_another_process_in_a_ranks_place_begins_again() -> None:
    before, now = a_rank(0), a_rank(0, pid=9, wall_ns=SECOND, steps=3)
    (row,) = rows({0: Reading(now, 0.0)}, {0: Reading(before, 0.0)}, {})
    assert (row.seconds, row.steps) == (1.0, 3)


def test_ranks_of_an_earlier_epoch_and_those_that_have_ended_are_left_out() -> None:
    lost, left, fresh = a_rank(1, epoch=0), a_rank(0, epoch=1), a_rank(1, epoch=1, pid=7)
    readings = {number: Reading(each, 0.0, "beta") for number, each in enumerate((left, lost, fresh))}
    found = rows(readings, {}, {}, elastic=True)
    assert [(row.rank, row.number, row.pid, row.host) for row in found] == [(0, 0, 100, "beta"), (1, 2, 7, "beta")]
    assert [row.rank for row in rows(readings, {}, {}, left={0}, elastic=True)] == [0]


def test_several_worlds_in_one_job_are_distinguished_by_the_numbers_of_their_ranks() -> None:
    readings = {number: Reading(a_rank(number % 2), 0.0, "beta") for number in range(4)}
    assert [row.rank for row in rows(readings, {}, {})] == [0, 1, 2, 3]


def test_a_reading_that_comes_twice_does_not_end_the_period() -> None:
    first, second = (Reading(a_rank(0, wall_ns=at * SECOND, steps=at), at) for at in (10, 11))
    again = second._replace(at_s=12.0)
    (row,) = rows({0: again}, earlier({0: first}, {0: second}, {0: again}), {})
    assert (row.seconds, row.steps) == (1.0, 1)
    third = Reading(a_rank(0, wall_ns=13 * SECOND, steps=13), 13.0)
    (row,) = rows({0: third}, earlier({0: first}, {0: again}, {0: third}), {})
    assert (row.seconds, row.steps) == (2.0, 2)
    assert earlier({}, {0: second}, {}) == {0: second}


def test_shares_stay_within_one_and_nothing_is_divided_by_nothing() -> None:
    (row,) = rows_of(a_rank(0, wall_ns=0, blocked_ns=5))
    assert (row.waiting, row.processor, row.per_second(3)) == (0.0, 0.0, 0.0)
    (row,) = rows_of(a_rank(0, wall_ns=SECOND, blocked_ns=3 * SECOND))
    assert (row.waiting, row.computing) == (1.0, 0.0)


@pytest.mark.parametrize(
    ("waiting", "named", "clear"),
    [
        ((0.48, 0.02), 1, True),
        ((0.0, 0.9), 0, True),
        ((0.4, 0.42, 0.03, 0.39), 2, True),
        ((0.12, 0.05), 1, False),
        ((0.30, 0.15), 1, False),
        ((0.40, 0.35), None, False),  # all wait alike
        ((0.03, 0.01), None, False),  # nobody waits
        ((0.40, 0.02, 0.03), None, False),  # two are slow: neither is the one
        ((0.40,), None, False),
        ((), None, False),
    ],
)
def test_who_is_the_slowest(waiting: tuple[float, ...], named: int | None, clear: bool) -> None:
    found = straggler(rows_of(*(a_rank(rank, share) for rank, share in enumerate(waiting))))
    assert (found.rank if found else None) == named
    assert (found.clear if found else False) == clear


def test_where_nobody_waits_in_a_call_the_tensors_tell() -> None:
    found = straggler(rows_of(a_rank(0, pending_ns=5 * SECOND), a_rank(1, pending_ns=SECOND // 10)))
    assert found is not None
    assert (found.rank, found.by_pending) == (1, True)
    assert "its tensors wait" in sentence(found)


def test_the_sentence_says_how_sure_it_is_and_what_the_process_did() -> None:
    found = straggler(rows_of(a_rank(0, 0.48), a_rank(1, 0.02, processor_ns=SECOND // 10)))
    assert found is not None
    assert sentence(found) == (
        "Rank 1 on alpha is the slowest: it waits for others 2 % of the time, the other ranks 48 %. Its process used "
        "1 % of a core: it slept, or waited for input, a file or a device."
    )
    found = straggler(rows_of(a_rank(0, 0.12), a_rank(1, 0.05)))
    assert found is not None
    assert "is probably the slowest" in sentence(found)
    assert "core" not in sentence(found)


def advised(*ranks: object) -> list[str]:
    made = rows_of(*ranks)  # type: ignore[arg-type]
    return advice(made, straggler(made))


def test_advice_needs_a_figure() -> None:
    assert "nothing to gain" in advised(a_rank(0), a_rank(1))[0]
    assert advised(a_rank(0, 0.3), a_rank(1, 0.28)) == []
    assert advised(a_rank(0)) == []
    assert advised(a_rank(0, wall_ns=SECOND // 2), a_rank(1, wall_ns=SECOND // 2)) == []
    idle = {"tensors": 0, "batches": 0, "operations": ((0, 0),) * 9}
    assert advised(a_rank(0, **idle), a_rank(1, **idle)) == []


def test_small_tensors_that_travel_alone_should_be_fused() -> None:
    (line,) = advised(a_rank(0, 0.0, 0.1), a_rank(1, 0.0, 0.1))
    assert "4.0 kB on average" in line
    assert "num_groups" in line
    assert advised(a_rank(0, 0.0, 0.1, batches=300), a_rank(1, 0.0, 0.1, batches=300)) == []


def test_large_transfers_should_be_compressed() -> None:
    large = {"operations": ((1000, 10**10), *((0, 0),) * 8)}
    (line,) = advised(a_rank(0, 0.0, 0.4, **large), a_rank(1, 0.0, 0.4, **large))
    assert line.startswith("40 % of the time is transfer, in batches of 10.0 MB")
    assert "Compression" in line


def test_an_idle_straggler_should_look_at_its_input() -> None:
    assert "input" in advised(a_rank(0, 0.5), a_rank(1, 0.0, processor_ns=0))[0]
