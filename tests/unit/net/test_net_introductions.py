"""Tests of horovod._net.handshake.introductions: the ranks of a host come to know one another by its leader."""

from __future__ import annotations

import contextlib
import os
import pathlib
import select
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from net_hosts import MakeHosts
from net_ranks import REGION_BYTES, connect_all, connected, forked, in_threads, open_descriptors, placements

from horovod._native import library
from horovod._native.config import tree as core_tree
from horovod._net.bootstrap import bootstrap
from horovod._net.clusters.placement import Placement
from horovod._net.failures import ConnectError, ProtocolError, StartTimeoutError
from horovod._net.handshake import introductions, members
from horovod._net.handshake.frames import links, messages
from horovod._net.handshake.introductions import Known, lines_of, parse_lines
from horovod._net.handshake.pairing import Pair
from horovod._net.handshake.roll_call import World
from horovod._net.meeting import directory, private_directories

KNOWN = st.builds(Known, st.integers(0, messages.MAX_RANKS - 1), st.integers(0, (1 << 22)))


def in_children(jobs: list[Placement], timeout_s: float = 60.0) -> list[int]:
    """`bootstrap` in a process each; the status of every one."""
    pids = [
        forked(lambda p=p: bootstrap(p, epoch=0, region_bytes=REGION_BYTES, timeout_s=timeout_s) and None) for p in jobs
    ]
    return [os.waitpid(pid, 0)[1] for pid in pids]


@given(st.lists(KNOWN, min_size=1, max_size=messages.MOST_INTRODUCED))
def test_what_is_said_is_read(known: list[Known]) -> None:
    text = lines_of(known)
    assert parse_lines(text) == known
    assert len(text) <= messages.MAX_TEXT_BYTES


@given(st.text(max_size=300))
def test_any_text_is_an_introduction_or_a_protocol_error(text: str) -> None:
    with contextlib.suppress(ProtocolError):
        assert 0 < len(parse_lines(text)) <= messages.MOST_INTRODUCED


def test_too_many_at_once_are_refused() -> None:
    with pytest.raises(ProtocolError):
        parse_lines(lines_of([Known(1, 1)] * (messages.MOST_INTRODUCED + 1)))


def test_everybody_is_connected_with_the_one_it_tells() -> None:
    numbers = [rank // 24 for rank in range(96)]
    for parents in (None, core_tree(library.load(), numbers)):
        world = World(numbers, [], parents=parents)
        for rank in range(96):
            above = world.above(rank)
            assert above is None if rank == 0 else above in world.neighbours(rank) and above < rank
            assert above is None or world.across(rank, above) or above == world.leader(rank)


@pytest.mark.parametrize("size", [3, 4, 9])
def test_a_host_needs_a_handshake_per_rank(
    private_base: pathlib.Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    authenticated: list[int] = []
    real = members.Members.join

    def counting(self: members.Members, pair: Pair, link: links.Link) -> None:
        authenticated.append(pair.rank)
        real(self, pair, link)

    monkeypatch.setattr(members.Members, "join", counting)
    results = connected(placements(size))
    assert len(authenticated) == 2 * (size - 1)  # both ends
    for rank, result in enumerate(results):
        for peer in result.peers:
            other = results[peer.rank]
            assert os.fstat(peer.memory_fd).st_ino == os.fstat(other.memory_fd).st_ino
            assert peer.memory_fd != other.memory_fd
            os.pwrite(peer.memory_fd, bytes([rank]), 4096 + rank)
            os.write(peer.doorbell_fd, (1).to_bytes(8, "little"))
        assert os.pread(result.memory_fd, 64, 0) == bytes(64)
    for rank, result in enumerate(results):
        told = os.pread(result.memory_fd, size, 4096)
        assert told == bytes(0 if other == rank else other for other in range(size))
        assert int.from_bytes(os.read(result.doorbell_fd, 8), "little") == size - 1
        result.close()
    assert os.listdir(private_base) == []


@pytest.mark.parametrize("by", ["pidfd", "pipe"])
def test_the_end_of_an_introduced_process_is_seen(
    private_base: pathlib.Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    if by == "pipe":  # a sandbox without pidfds: the leader passes on what the rank has offered
        monkeypatch.setattr(links.Link, "peer_pidfd", lambda self: None)
    jobs = placements(3)
    go, told = os.pipe()

    def child() -> None:
        bootstrap(jobs[2], epoch=0, region_bytes=REGION_BYTES, timeout_s=20)
        os.close(told)
        os.read(go, 1)

    pid = forked(child)
    os.close(go)
    results: Any = in_threads(
        [lambda p=p: bootstrap(p, epoch=0, region_bytes=REGION_BYTES, timeout_s=20) for p in jobs[:2]]
    )
    peer = results[1].peers[1]
    assert peer.rank == 2 and peer.pid == pid
    assert by in os.readlink(f"/proc/self/fd/{peer.liveness_fd}")
    assert select.select([peer.liveness_fd], [], [], 0)[0] == []
    os.close(told)
    assert select.select([peer.liveness_fd], [], [], 10)[0] == [peer.liveness_fd]
    os.waitpid(pid, 0)
    for result in results:
        result.close()


def test_forty_ranks_connect_by_few_descriptors_at_a_time(
    private_base: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(introductions, "MOST_INTRODUCED", 16)
    under_way: dict[int, int] = {}  # descriptors, by the rank that is to take them
    most = [0]
    real_send, real_hear = members.Members.send, introductions.Introductions.hear

    def send(self: members.Members, pair: Pair, message: Any, descriptors: Any = ()) -> None:
        if isinstance(message, messages.Introduction):
            under_way[pair.rank] = len(descriptors)
            most[0] = max(most[0], sum(under_way.values()))
        real_send(self, pair, message, descriptors)

    def hear(self: introductions.Introductions, pair: Pair, message: Any) -> None:
        if isinstance(message, messages.Taken):
            del under_way[pair.rank]
        real_hear(self, pair, message)

    monkeypatch.setattr(members.Members, "send", send)
    monkeypatch.setattr(introductions.Introductions, "hear", hear)
    results = connected(placements(40), timeout_s=55.0)  # of one interpreter
    assert 0 < most[0] <= 256, "of 1024 that a process may have open, as the kernel counts them"
    assert under_way == {}
    for rank, result in enumerate(results):
        assert [peer.rank for peer in result.peers] == [other for other in range(40) if other != rank]
        assert all(peer.memory_fd >= 0 and peer.liveness_fd >= 0 for peer in result.peers)
        result.close()
    assert os.listdir(private_base) == []


def test_a_leader_that_dies_between_two_introductions_is_named_by_all(private_base: pathlib.Path) -> None:
    jobs = placements(4)

    def dying() -> None:
        real = members.Members.send

        def send(self: Any, pair: Pair, message: Any, descriptors: Any = ()) -> None:
            real(self, pair, message, descriptors)
            if isinstance(message, messages.Introduction):
                os._exit(7)

        members.Members.send = send  # type: ignore[method-assign]
        bootstrap(jobs[0], epoch=0, region_bytes=REGION_BYTES, timeout_s=60)

    before = open_descriptors()
    pid = forked(dying)
    started = time.monotonic()
    results = connect_all(jobs[1:], timeout_s=60.0)
    assert os.waitpid(pid, 0)[1] >> 8 == 7
    for result in results:
        assert isinstance(result, ConnectError) and result.ranks == (0,), result
        assert f"Rank 0 (pid {pid}) died" in str(result)
    assert time.monotonic() - started < 30
    assert len(open_descriptors() - before) == len(results)  # their claims
    assert os.listdir(private_base) == []


def test_a_rank_that_dies_before_its_introduction_is_named_by_all(private_base: pathlib.Path) -> None:
    jobs = placements(4)

    def dying() -> None:
        introductions.parse_lines = lambda text: os._exit(7)
        bootstrap(jobs[2], epoch=0, region_bytes=REGION_BYTES, timeout_s=60)

    pid = forked(dying)
    results = connect_all([jobs[0], jobs[1], jobs[3]], timeout_s=60.0)
    assert os.waitpid(pid, 0)[1] >> 8 == 7
    for result in results:
        assert isinstance(result, ConnectError) and result.ranks == (2,), result
    assert os.listdir(private_base) == []


@pytest.mark.parametrize("message", [messages.Taken(), messages.Introduction("1 7"), messages.Introduction("?")])
def test_only_a_leader_introduces_and_only_when_it_is_due(message: Any) -> None:
    pairs = {0: Pair(0, True), 1: Pair(1, True), 3: Pair(3, True, by_leader=True)}
    said: list[Any] = []

    class Taking:
        def take_descriptors(self, pair: Pair, n: int) -> list[int]:
            return [os.open("/dev/null", os.O_RDONLY) for _ in range(n)]

        def send(self, pair: Pair, message: Any, descriptors: Any = ()) -> None:
            said.append(message)

    table: Any = Taking()
    mine = introductions.Introductions(2, 0, pairs, table, REGION_BYTES)
    before = open_descriptors()
    with pytest.raises(ProtocolError):
        mine.hear(pairs[1], message)
    with pytest.raises((ProtocolError, ConnectError)):
        mine.hear(pairs[0], message)  # rank 1 is connected with this one, and needs none
    assert said == [] and open_descriptors() == before


def test_two_hosts_of_several_ranks(hosts: MakeHosts) -> None:
    for counts in ((3, 4), (1, 5, 3)):
        numbers = [host for host, count in enumerate(counts) for _ in range(count)]
        results = connected(hosts(counts).placements)
        for rank, result in enumerate(results):
            for peer in result.peers:
                assert (peer.memory_fd >= 0) == peer.same_host == (numbers[peer.rank] == numbers[rank])
                assert (peer.control_fd >= 0) == (peer.data_fd >= 0) == (not peer.same_host)
            result.close()


def test_children_of_their_own_connect_64_at_once(private_base: pathlib.Path) -> None:
    assert set(in_children(placements(64))) == {0}
    assert os.listdir(private_base) == []


def test_a_rank_that_came_and_does_not_go_on_differs_from_those_that_never_came(private_base: pathlib.Path) -> None:
    jobs = placements(4)
    stuck = directory.Meeting(jobs[3], 0, private_directories.choose_base("0"), own_base=True)
    stuck.join(time.monotonic() + 5)  # nobody serves its socket
    try:
        results = connect_all(jobs[:3], timeout_s=0.5)
        first = next(r for r in results if isinstance(r, StartTimeoutError))
        assert 3 in first.ranks
        for result in results[1:]:
            if isinstance(result, StartTimeoutError):
                assert "came to the meeting of this host and were not introduced" in str(result)
    finally:
        stuck.leave(time.monotonic() + 5)


def test_an_absent_leader_is_named(private_base: pathlib.Path) -> None:
    results = connect_all(placements(4)[1:], timeout_s=0.5)
    assert any(isinstance(r, StartTimeoutError) and r.ranks == (0,) for r in results), results
    for result in results:
        assert isinstance(result, ConnectError) and "Rank 0 of 4 did not connect" in str(result), results
