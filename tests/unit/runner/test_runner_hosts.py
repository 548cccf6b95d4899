"""Hosts: parsing of -H and hostfiles, and the assignment of ranks."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horovod._core.errors import InvalidArgumentError
from horovod.runner.common.util.hosts import HostInfo, SlotInfo, get_host_assignments
from horovod.runner.machines.hosts import Host, Slot, assign, parse_hostfile, parse_hosts


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("localhost:2", [Host("localhost", 2)]),
        ("h1:2,h2:4", [Host("h1", 2), Host("h2", 4)]),
        ("h1, h-2.x_y:3", [Host("h1", 1), Host("h-2.x_y", 3)]),
        ("[fe80::1%eth0]:2,[fe80::2%3]", [Host("fe80::1%eth0", 2), Host("fe80::2%3", 1)]),
        ("[fe80::1]:4,[::1]", [Host("fe80::1", 4), Host("::1", 1)]),
        ("h1:1,h2:1,h1:2", [Host("h1", 3), Host("h2", 1)]),
    ],
)
def test_hosts_option(text: str, hosts: list[Host]) -> None:
    assert parse_hosts(text) == hosts


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a host name has letters"),
        ("h1:2,", "a host name has letters"),
        ("localhost=2", "-H 'localhost=2': 'localhost=2' is not HOST:SLOTS. Write localhost:2."),
        ("h1:", "the number of slots must be an integer >= 1. Received: ''"),
        ("h1:0", "must be an integer >= 1"),
        ("h1:-1", "must be an integer >= 1"),
        ("h1:two", "must be an integer >= 1. Received: 'two'"),
        ("h1:99999999", "must be an integer >= 1"),
        ("h;rm -rf:1", "a host name has letters"),
        ("me@h1:2", "write 'Host h1' and 'User me' into ~/.ssh/config"),
        ("me@:2", "a host name has letters"),
        ("fe80::1:2", "write an IPv6 address in brackets"),
        *(
            (f"[fe80::1%{scope}]:2", "its scope must be the name of an interface, as in fe80::1%eth0, not ")
            for scope in ("$(id)", "a b", "'", '"', "a\nb", "-oProxyCommand=x", "", "sixteen-letters-")
        ),
        ("[fe80::zz]:2", "is not an IPv6 address"),
        ("[fe80::1:2", "a host name has letters"),
        ("[::1]x", "expected name:slots"),
    ],
)
def test_bad_hosts_option(text: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        parse_hosts(text)
    assert message in str(caught.value)


def test_hostfile() -> None:
    text = "# cluster\r\nnode1 slots=2\n\n  node2\tslots = 3 # fast\nnode3:4\nnode4\n[fe80::1] slots=2\nnode1\n"
    assert parse_hostfile(text) == [
        Host("node1", 3),
        Host("node2", 3),
        Host("node3", 4),
        Host("node4", 1),
        Host("fe80::1", 2),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "h.txt names no host"),
        ("# nothing\n\n", "h.txt names no host"),
        ("a slots=2\nb slots=x\n", "h.txt, line 2: the number of slots must be an integer >= 1. Received: 'x'."),
        ("a max_slots=2\n", "h.txt, line 1: expected 'name slots=N'. Received: 'a max_slots=2'."),
        ("a b c\n", "h.txt, line 1: expected 'name slots=N'"),
    ],
)
def test_bad_hostfile(text: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        parse_hostfile(text, "h.txt")
    assert message in str(caught.value)


@given(st.text(max_size=60))
def test_any_text_is_hosts_or_a_clean_error(text: str) -> None:
    for parse in (parse_hosts, parse_hostfile):
        try:
            hosts = parse(text)
        except InvalidArgumentError:
            continue
        assert hosts
        assert all(host.hostname and host.slots >= 1 for host in hosts)


@given(st.text(alphabet="ab:[]# =\n,1slots", max_size=40))
def test_near_misses_are_hosts_or_a_clean_error(text: str) -> None:
    for parse in (parse_hosts, parse_hostfile):
        try:
            assert all(host.slots >= 1 for host in parse(text))
        except InvalidArgumentError:
            continue


def test_assignment_of_unequal_hosts() -> None:
    assert assign([Host("a", 2), Host("b", 1), Host("c", 3)], 5, 5) == [
        Slot("a", 0, 0, 0, 5, 2, 3),
        Slot("a", 1, 1, 0, 5, 2, 2),
        Slot("b", 2, 0, 1, 5, 1, 3),
        Slot("c", 3, 0, 2, 5, 2, 3),
        Slot("c", 4, 1, 1, 5, 2, 2),
    ]


def test_assignment_takes_what_there_is_without_a_maximum() -> None:
    assert len(assign([Host("a", 2), Host("b", 3)], 2)) == 5
    assert len(assign([Host("a", 2), Host("b", 3)], 2, 4)) == 4


def test_too_few_slots_are_an_error() -> None:
    with pytest.raises(InvalidArgumentError, match=r"4 processes need 4 slots, but the hosts have 3 \(a:1, b:2\)"):
        assign([Host("a", 1), Host("b", 2)], 4)


def test_more_ranks_than_a_job_can_have_are_an_error_at_once() -> None:
    with pytest.raises(InvalidArgumentError, match=r"at most 1048576 processes; lower -np. Received: 99999999999"):
        assign([Host("localhost", 99_999_999_999)], 99_999_999_999, 99_999_999_999)


def test_many_hosts_are_assigned_soon() -> None:
    began = time.process_time()
    slots = assign([Host(f"h{number}", 4) for number in range(1 << 14)], 1)
    assert (slots[-1].cross_rank, slots[-1].cross_size, slots[-1].rank) == ((1 << 14) - 1, 1 << 14, (1 << 16) - 1)
    assert time.process_time() - began < 5.0, "it took minutes when each rank looked at all hosts"


@given(st.lists(st.integers(1, 6), min_size=1, max_size=6), st.data())
def test_assignment_is_consistent(counts: list[int], data: st.DataObject) -> None:
    size = data.draw(st.integers(1, sum(counts)))
    slots = assign([Host(f"h{index}", count) for index, count in enumerate(counts)], size, size)
    assert [slot.rank for slot in slots] == list(range(size))
    for slot in slots:
        same_host = [other for other in slots if other.hostname == slot.hostname]
        same_index = [other for other in slots if other.local_rank == slot.local_rank]
        assert same_host[slot.local_rank] is slot
        assert same_index[slot.cross_rank] is slot
        assert (slot.size, slot.local_size, slot.cross_size) == (size, len(same_host), len(same_index))


def test_compatible_names() -> None:
    assert HostInfo.from_string("h:2") == Host("h", 2)
    slot = get_host_assignments([HostInfo("h", 2)], 1, 1)[0]
    assert isinstance(slot, SlotInfo)
    assert (slot.hostname, slot.rank, slot.local_rank, slot.cross_rank) == ("h", 0, 0, 0)
    assert (slot.size, slot.local_size, slot.cross_size) == (1, 1, 1)


@pytest.mark.parametrize("name", ["-oProxyCommand", "-F", ".a"])
def test_a_name_that_a_program_would_take_for_an_option_is_none(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match="not as its first"):
        parse_hosts(f"{name}:1")
