"""What elastic jobs are decided with: printed hosts, cool-downs, orders of ranks. Values only."""

from __future__ import annotations

import pytest

from horovod._core.errors import InvalidArgumentError
from horovod.runner.elastic.assignment import order, seats
from horovod.runner.elastic.blacklist import Blacklist, check_cooldown, cooldown_s
from horovod.runner.elastic.discovery import in_stable_order, parse
from horovod.runner.machines.hosts import Host


def test_hosts_as_a_script_prints_them() -> None:
    text = "\n# mine\nhost1:2\n  host2 # no number\n[fe80::1]:3\nhost1:1\n"
    assert parse(text, "find.sh", 4) == (Host("host1", 3), Host("host2", 4), Host("fe80::1", 3))
    assert parse("", "find.sh", None) == ()


def test_a_host_with_0_slots_is_a_host_without_slots() -> None:
    assert parse("host1:0\nhost2:1\n[fe80::1]:0\n", "find.sh", None) == (Host("host2", 1),)
    assert parse("host1:0\nhost1:2", "find.sh", None) == (Host("host1", 2),)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("host1:2\nTraceback (most recent call last):", "find.sh, line 2"),
        ("host1", "has no number of slots; print 'host:slots'"),
        ("host1:-1", "must be an integer >= 1"),
        ("-x:0", "find.sh, line 1"),
        ("-oProxyCommand=x:1", "find.sh, line 1"),
        ("\x00\x01", "find.sh, line 1"),
    ],
)
def test_rubbish_is_reported_with_its_line(text: str, words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        parse(text, "find.sh", None)


def test_known_hosts_keep_their_order() -> None:
    known = (Host("b", 1), Host("a", 2), Host("c", 1))
    found = (Host("d", 1), Host("a", 4), Host("b", 1))
    assert in_stable_order(known, found) == (Host("b", 1), Host("a", 4), Host("d", 1))


def test_a_host_is_given_up_for_good_without_a_range() -> None:
    held = Blacklist().after_failure("a", "rank 1 died", alone=False, now_s=10, chance=0)
    assert held.holds("a", 1e9)
    assert held.drains("a", 1e9)
    assert not held.holds("b", 10)
    assert held.next_s(10) is None


def test_cooldowns_double_within_their_bounds_and_do_not_grow_meanwhile() -> None:
    assert [cooldown_s(k, (10, 100), 0.5) for k in (1, 2, 3, 4)] == [25, 45, 85, 100]
    held = Blacklist(cooldown=(10, 100)).after_failure("a", "x", alone=False, now_s=0, chance=0)
    assert held.next_s(0) == 20
    assert held.after_failure("a", "y", alone=False, now_s=5, chance=0) == held
    assert held.drains("a", 19)
    assert not held.holds("a", 20) and not held.drains("a", 20)
    again = held.after_failure("a", "y", alone=False, now_s=30, chance=0)
    assert again.next_s(30) == 70


def test_the_only_host_is_not_given_up_but_pauses_longer_and_longer() -> None:
    held, until = Blacklist(), []
    for now in (0, 1, 2, 3):
        held = held.after_failure("a", "x", alone=True, now_s=now, chance=0)
        until.append(held.entries[0].until_s)
        assert not held.drains("a", now)
    assert until == [0, 2, 5, 10]
    held = held.after_failure("a", "x", alone=True, now_s=1000, chance=0)
    assert held.entries[0].until_s == 1000


@pytest.mark.parametrize("bounds", [(0, 5), (1, 3601)])
def test_a_range_must_be_one_that_a_job_would_wait(bounds: tuple[int, int]) -> None:
    with pytest.raises(InvalidArgumentError, match="from 1 to 3600"):
        check_cooldown(bounds, "--blacklist-cooldown-range")


def test_survivors_keep_their_order_but_for_the_newest_commit() -> None:
    assert order([4, 1, 2], {4: (3, 1), 1: (3, 1), 2: (3, 1)}, [7]) == [4, 1, 2, 7]
    assert order([4, 1, 2], {4: (3, 1), 1: (3, 2), 2: (3, 2)}, []) == [1, 4, 2]
    # Equal states since a later epoch are newer than any commit of an earlier one.
    assert order([4, 1], {4: (3, 9), 1: (4, 0)}, []) == [1, 4]


def test_places_on_two_hosts() -> None:
    found = [seat.slot[1:] for seat in seats([5, 2, 9], {5: "a", 2: "b", 9: "a"})]
    #         rank, local rank, cross rank, size, local size, cross size
    assert found == [(0, 0, 0, 3, 2, 2), (1, 0, 1, 3, 1, 2), (2, 1, 0, 3, 2, 1)]


@pytest.mark.parametrize(
    ("homes", "newcomers", "local_ranks"),
    [
        ({1: 1, 2: 2}, [9], {1: 1, 2: 2, 9: 0}),
        ({1: 1, 3: 3}, [8, 9], {1: 1, 3: 3, 8: 0, 9: 2}),
        ({3: 3, 1: 1}, [], {3: 0, 1: 1}),  # 3 has no number of its own any more
        ({3: 3, 1: 1}, [9], {3: 0, 1: 1, 9: 2}),  # nor yet again; nobody else gets it meanwhile
        ({3: 3, 1: 1, 9: 2}, [10], {3: 3, 1: 1, 9: 2, 10: 0}),
        ({3: 3}, [9], {3: 0, 9: 1}),
    ],
)
def test_survivors_keep_their_local_ranks(
    homes: dict[int, int], newcomers: list[int], local_ranks: dict[int, int]
) -> None:
    workers = [*homes, *newcomers]
    found = {seat.worker: seat.slot.local_rank for seat in seats(workers, dict.fromkeys(workers, "a"), homes)}
    assert found == local_ranks


def test_local_ranks_that_are_kept_are_those_of_a_host() -> None:
    found = seats([1, 3, 9], {1: "a", 3: "b", 9: "a"}, {1: 1, 3: 1})
    #        local rank, cross rank, local size, cross size
    assert [(each.slot[2], each.slot[3], each.slot[5], each.slot[6]) for each in found] == [
        (1, 0, 2, 1),
        (0, 1, 1, 2),
        (0, 0, 2, 2),
    ]
