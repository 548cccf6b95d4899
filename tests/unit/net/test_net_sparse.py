"""Tests of jobs that begin with few connections: who is connected with whom, how all agree, and what comes later."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import select
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, Optional

import pytest
from net_hosts import Hosts, MakeHosts
from net_ranks import REGION_BYTES, connect_all, connected, forked, in_threads, open_descriptors

from horovod._native import library
from horovod._native.config import tree as core_tree
from horovod._net.bootstrap import Ways, bootstrap
from horovod._net.connections import Connections
from horovod._net.failures import ConnectError
from horovod._net.handshake import strangers
from horovod._net.handshake.consent import Consent
from horovod._net.handshake.door import Door
from horovod._net.handshake.frames.links import Link
from horovod._net.handshake.on_demand import OnDemand
from horovod._net.handshake.roll_call import World


def tree(hosts: Sequence[int]) -> list[int]:
    """The ranks of a host under its first one, those under one another in a chain."""
    leaders: list[int] = []
    parents = []
    for rank, host in enumerate(hosts):
        first = list(hosts).index(host)
        parents.append(first if first != rank else leaders[-1] if leaders else -1)
        leaders += [rank] if first == rank else []
    return parents


SPARSE = Ways(full_mesh_ranks=0, tree=tree)


class TestConsent:
    def test_nobody_knows_before_all_have_come_so_far(self) -> None:
        choose = random.Random(5)
        for _ in range(200):
            size = choose.randrange(2, 12)
            parents = [-1] + [choose.randrange(rank) for rank in range(1, size)]
            ranks = [along(parents, rank, choose) for rank in range(size)]
            assert told_in_any_order(ranks, choose) == [True] * size

    def test_who_knows_tells_also_those_it_is_connected_with_outside_the_tree(self) -> None:
        others = [{0, 1, 2, 3} - {rank} for rank in range(4)]
        ranks = [Consent(0 if rank else None, () if rank else others[0], others[rank]) for rank in range(4)]
        assert told_in_any_order(ranks, random.Random(1)) == [True] * 4
        assert ranks[1].due({0}) == others[1] and ranks[1].complete({2})


def along(parents: Sequence[int], rank: int, choose: random.Random) -> Consent:
    children = [child for child, parent in enumerate(parents) if parent == rank]
    parent = parents[rank] if rank else None
    return Consent(parent, children, {*children, *([] if parent is None else [parent])})


def told_in_any_order(ranks: Sequence[Consent], choose: random.Random) -> list[bool]:
    """Moves the messages one by one, in any order, the last rank coming late; who knows in the end."""
    there = set(range(len(ranks) - 1))
    heard: list[set[int]] = [set() for _ in ranks]
    while True:
        moves = [
            (rank, to)
            for rank in there
            for to in ranks[rank].due(heard[rank])
            if rank not in heard[to]  # nobody tells twice
        ]
        if moves:
            rank, to = choose.choice(moves)
            heard[to].add(rank)
        elif len(there) < len(ranks):
            assert not any(ranks[rank].complete(heard[rank]) for rank in there)
            there.add(len(ranks) - 1)
        else:
            return [each.complete(heard[rank]) for rank, each in enumerate(ranks)]


def test_only_neighbours_in_the_tree_are_connected(hosts: MakeHosts) -> None:
    counts = (1, 3, 2, 2)
    numbers = [host for host, count in enumerate(counts) for _ in range(count)]
    parents = tree(numbers)
    results = connected(hosts(counts).placements, ways=SPARSE)
    for rank, result in enumerate(results):
        assert [peer.rank for peer in result.peers] == [other for other in range(8) if other != rank]
        for peer in result.peers:
            together = numbers[peer.rank] == numbers[rank]
            neighbours = parents[peer.rank] == rank or parents[rank] == peer.rank
            assert peer.same_host == together == (peer.memory_fd >= 0)
            assert (peer.control_fd >= 0) == (neighbours and not together)
            assert peer.data_fd < 0
        assert result.reach is not None
        assert sorted(result.reach.addresses) == [other for other in range(8) if numbers[other] != numbers[rank]]
        result.close()
        assert result.reach is None


def test_rank_0_decides(hosts: MakeHosts) -> None:
    job = hosts((1, 1, 1))
    options: dict[str, Any] = {"epoch": 0, "region_bytes": REGION_BYTES, "timeout_s": 20.0}
    for few in (True, False):
        wanted = [few, not few, not few]
        results = in_threads(
            [
                lambda place=place, want=want: bootstrap(
                    place, ways=SPARSE if want else Ways("auto", 9, tree), **options
                )
                for place, want in zip(job.placements, wanted)
            ]
        )
        assert [result.reach is not None for result in results] == [few] * 3, results
        for result in results:
            result.close()


def test_a_rank_that_dies_is_known_to_those_that_are_not_connected_with_it(hosts: MakeHosts) -> None:
    job = hosts((1, 1, 1, 2))

    def die(connections: Connections) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    options: dict[str, Any] = {"epoch": 0, "region_bytes": REGION_BYTES, "timeout_s": 30, "ways": SPARSE}
    pid = forked(lambda: bootstrap(job.placements[4], start=die, **options) and None)
    begin = time.monotonic()
    results = connect_all(job.placements[:4], **options)
    os.waitpid(pid, 0)
    assert time.monotonic() - begin < 10
    assert all(isinstance(result, ConnectError) and result.ranks == (4,) for result in results), results


def test_an_engine_that_does_not_start_is_known_everywhere(hosts: MakeHosts) -> None:
    def fail(connections: Connections) -> None:
        raise ValueError("no room for a trace")

    places = hosts((2, 1, 1)).placements
    options: dict[str, Any] = {"epoch": 0, "region_bytes": REGION_BYTES, "timeout_s": 30, "ways": SPARSE}
    for culprit in range(4):
        starts = [{"start": fail} if place.rank == culprit else {} for place in places]
        results = in_threads(
            [
                lambda place=place, start=start: bootstrap(place, **options, **start)
                for place, start in zip(places, starts)
            ]
        )
        others = [result for rank, result in enumerate(results) if rank != culprit]
        assert all(isinstance(result, ConnectError) and "no room for a trace" in str(result) for result in others)
        assert isinstance(results[culprit], ValueError)


class Later:
    """A rank that opens connections when it is told to."""

    def __init__(self, connections: Connections) -> None:
        self.rank = connections.placement.rank
        self.came: dict[int, socket.socket] = {}
        self.why_not: dict[int, str] = {}
        self._news = threading.Condition()
        self.on_demand = OnDemand(connections, self._deliver)
        self.wishes = socket.socket(fileno=self.on_demand.take_wish_fd())
        before = set(threading.enumerate())
        self.on_demand.start()
        self._started = [each for each in threading.enumerate() if each not in before and "connections" in each.name]
        self._connections = connections

    def _deliver(self, rank: int, fd: int, why_not: str) -> None:
        with self._news:
            if fd >= 0:
                self.came[rank] = socket.socket(fileno=fd)
                self.came[rank].sendall(b"%d to %d" % (self.rank, rank))  # at once, as an engine does
            else:
                self.why_not[rank] = why_not
            self._news.notify_all()

    def wish(self, *ranks: int) -> None:
        self.wishes.sendall(struct.pack(f"{len(ranks)}i", *ranks))

    def heard_from(self, rank: int) -> Optional[bytes]:
        """What that rank has sent, once it is connected; None: there is no connection."""
        with self._news:
            assert self._news.wait_for(lambda: rank in self.came or rank in self.why_not, 20), f"{rank} never came"
        if rank not in self.came:
            return None
        sock = self.came[rank]
        assert select.select([sock], [], [], 20)[0]
        return sock.recv(100)

    def has_its_thread(self) -> bool:
        return any(thread.is_alive() for thread in self._started)

    def end(self) -> None:
        self.wishes.close()
        self.on_demand.stop(5)
        for sock in self.came.values():
            sock.close()
        self._connections.close()


@contextlib.contextmanager
def later(job: Hosts) -> Iterator[list[Later]]:
    ranks = [Later(result) for result in connected(job.placements, ways=SPARSE)]
    try:
        yield ranks
    finally:
        for rank in ranks:
            rank.end()


def test_all_pairs_connect_when_they_wish_and_no_byte_is_lost(hosts: MakeHosts) -> None:
    counts = (2, 1, 2)
    numbers = [0, 0, 1, 2, 2]
    with later(hosts(counts)) as ranks:
        for rank in ranks:
            rank.wish(*[lower for lower in range(rank.rank) if numbers[lower] != numbers[rank.rank]])
        for a, b in [(a, b) for a in range(5) for b in range(5) if numbers[a] != numbers[b]]:
            assert ranks[a].heard_from(b) == b"%d to %d" % (b, a)
    assert all(not rank.why_not for rank in ranks)


def test_who_comes_while_another_rank_still_starts_is_not_lost(hosts: MakeHosts) -> None:
    job = hosts((1, 1))
    for _ in range(5):
        ranks: dict[int, Later] = {}

        def start(connections: Connections, ranks: dict[int, Later] = ranks) -> None:
            slow = connections.placement.rank == 0
            time.sleep(0.1 if slow else 0.0)
            made = ranks[connections.placement.rank] = Later(connections)
            if not slow:
                made.wish(0)  # when the other one's engine does not run

        connected(job.placements, ways=SPARSE, start=start)
        assert ranks[1].heard_from(0) == b"0 to 1" and ranks[0].heard_from(1) == b"1 to 0"
        for rank in ranks.values():
            rank.end()


def test_descriptors_of_64_hosts_of_16_ranks() -> None:
    numbers = [rank // 16 for rank in range(1024)]
    world = World(numbers, [], parents=core_tree(library.load(), numbers))
    own, in_a_host, between_hosts = 25, 2 * 15, 6
    for rank in (*range(0, 1024, 16), *range(1, 1024, 37)):
        across = [other for other in world.neighbours(rank) if numbers[other] != numbers[rank]]
        assert own + in_a_host + len(across) + between_hosts < 100
        assert len(across) <= (17 if rank % 16 == 0 else 0)


def test_a_crowd_of_strangers_does_not_keep_a_rank_away(hosts: MakeHosts) -> None:
    job = hosts((1, 1))
    with later(job) as ranks, contextlib.ExitStack() as crowd:
        address = next(("127.0.0.1", int(v.split()[0])) for k, v in job.board.entries.items() if k.endswith(".card.0"))
        before = len(open_descriptors())
        for number in range(200):
            stranger = crowd.enter_context(socket.create_connection(address))
            if number % 3:
                with contextlib.suppress(ConnectionError):
                    stranger.sendall(b"GET / HTTP/1.1\r\n\r\n" if number % 2 else b"HVDN")
        ranks[1].wish(0)
        assert ranks[1].heard_from(0) == b"0 to 1" and ranks[0].heard_from(1) == b"1 to 0"
        assert len(open_descriptors()) - before - 200 < 80, "of those that say nothing, only so many stay"


def test_a_moment_without_descriptors_costs_no_connection(hosts: MakeHosts, monkeypatch: pytest.MonkeyPatch) -> None:
    accept = Door.accept
    failures = [OSError(errno.EMFILE, os.strerror(errno.EMFILE)), OSError(errno.ENOBUFS, os.strerror(errno.ENOBUFS))]

    def fails_at_first(door: Door, listener: socket.socket) -> Iterator[Link]:
        if failures:
            raise failures.pop()
        return accept(door, listener)

    with later(hosts((1, 1))) as ranks:
        monkeypatch.setattr(Door, "accept", fails_at_first)
        ranks[1].wish(0)
        assert ranks[1].heard_from(0) == b"0 to 1" and ranks[0].heard_from(1) == b"1 to 0"
    assert not failures


def test_the_thread_ends_also_when_somebody_else_holds_the_engines_end(hosts: MakeHosts) -> None:
    with later(hosts((1, 1))) as ranks:
        copy = os.dup(ranks[0].wishes.fileno())
        assert ranks[0].has_its_thread()
    assert not ranks[0].has_its_thread()
    os.close(copy)


def test_a_rank_that_is_gone_is_named(hosts: MakeHosts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strangers, "LONGEST_S", 0.01)
    with later(hosts((1, 1, 1))) as ranks:
        ranks[0].end()
        ranks[2].wish(0)
        assert ranks[2].heard_from(0) is None
        assert ranks[2].why_not[0].startswith("Rank 0 refused this rank's data connection: Connection refused")
        ranks[2].wish(1)  # and the thread lives
        assert ranks[2].heard_from(1) == b"1 to 2"


def test_another_job_is_not_let_in(hosts: MakeHosts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strangers, "LONGEST_S", 0.01)
    job = hosts((1, 1))
    first = connected(job.placements, ways=SPARSE)
    again = connected(job.placements, ways=SPARSE)  # another epoch
    assert first[0].reach is not None and again[1].reach is not None
    again[1].reach.addresses[0] = first[0].reach.listener.getsockname()[:2]
    old, new = Later(first[0]), Later(again[1])
    new.wish(0)
    assert new.heard_from(0) is None and not old.came
    for each in (old, new):
        each.end()
    first[1].close()
    again[0].close()


def test_everything_is_closed_in_the_end_and_in_children(hosts: MakeHosts) -> None:
    job = hosts((1, 2))
    with later(job):
        pass
    before = open_descriptors()
    with later(job) as ranks:
        ranks[1].wish(0)
        assert ranks[1].heard_from(0) == b"0 to 1"
        reading, writing = os.pipe()

        def child() -> None:
            for rank in ranks:
                rank.on_demand.forget()
            listening = sum("socket" in each for each in open_descriptors())
            os.write(writing, struct.pack("i", listening))

        here = sum("socket" in each for each in open_descriptors())
        os.waitpid(forked(child), 0)
        (left,) = struct.unpack("i", os.read(reading, 4))
        assert here - left == 6, "a listener and an end of the wishes of each rank"
        for fd in (reading, writing):
            os.close(fd)
        ranks[2].wish(0)  # the parent is as it was
        assert ranks[2].heard_from(0) == b"0 to 2"
    time.sleep(0.2)  # the keeper of the board closes its ends a moment later
    assert len(open_descriptors() - before) == 3, "the claims of the second meeting alone"
