"""Tests of ranks on several hosts: all meet, trust one another and agree; every failure is fast, named and clean."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import random
import signal
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Optional

import pytest
from net_hosts import SECRET, MakeHosts
from net_ranks import REGION_BYTES, connect_all, connected, forked, in_threads, open_descriptors

from horovod._net.bootstrap import bootstrap
from horovod._net.connections import Connections
from horovod._net.failures import ConnectError, MeetingError, NetError, PlacementError, StartTimeoutError
from horovod._net.handshake import strangers
from horovod._net.handshake.frames import tcp_options
from horovod._net.handshake.frames.codes import FrameCodes
from horovod._net.handshake.frames.messages import AFTER_AUTHENTICATION, FrameReader, Ready, frame
from horovod._net.handshake.roll_call import Card, parse_card
from horovod._net.meeting.board import Attempt, AttemptOverError


class Heard:
    """A board on which some entries stand, and more once somebody waits for an answer."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = list(keys)
        self.when_it_waits: list[str] = []

    def post(self, key: str, value: str) -> None:
        """Nothing comes of it."""

    def get(self, key: str) -> Optional[str]:
        return "it stands" if key in self._keys else None

    def before(self, key: str, other: str) -> bool:
        return key in self._keys and other in self._keys and self._keys.index(key) < self._keys.index(other)

    def keys(self) -> list[str]:
        return self._keys

    def wait(self, seconds: float) -> None:
        self._keys += self.when_it_waits


def close(results: Sequence[object]) -> None:
    for result in results:
        if isinstance(result, Connections):
            result.close()


@pytest.mark.parametrize("counts", [(1, 1), (2, 2), (3, 1), (1, 2, 3)])
def test_ranks_share_memory_on_a_host_and_sockets_across(hosts: MakeHosts, counts: tuple[int, ...]) -> None:
    job = hosts(counts)
    numbers = [host for host, count in enumerate(counts) for _ in range(count)]
    results = connected(job.placements)
    for rank, result in enumerate(results):
        assert result.host_of_rank == numbers
        assert len(result.object_key) == 32
        assert (result.memory_fd >= 0) == (counts[numbers[rank]] > 1)
        for peer in result.peers:
            together = numbers[peer.rank] == numbers[rank]
            assert peer.same_host == together == (peer.memory_fd >= 0)
            assert (peer.control_fd >= 0) == (peer.data_fd >= 0) == (not together)
    assert len({result.object_key for result in results}) == 1
    close(results)
    assert job.left_behind() == []


@pytest.mark.parametrize("keeps, expected", [(True, [1, 0, 1, 0]), (False, [0, 1, 0, 1])])
def test_local_ranks_of_an_elastic_job_stay(hosts: MakeHosts, keeps: bool, expected: list[int]) -> None:
    """By which processes have chosen their GPUs; as its launcher numbers the survivors after rank 0 was lost."""
    jobs = hosts((2, 2)).placements
    kept = [dataclasses.replace(each, local_rank=1 - each.local_rank, keeps_local_rank=keeps) for each in jobs]
    results = connected(kept)
    assert [each.placement.local_rank for each in results] == expected
    close(results)


def test_both_ends_of_a_connection_between_hosts_are_one(hosts: MakeHosts) -> None:
    results = connected(hosts((2, 2)).placements)
    for result in results:
        for peer in result.peers:
            if not peer.same_host:
                other = next(p for p in results[peer.rank].peers if p.rank == result.placement.rank)
                assert peer.key == other.key != bytes(16)
                for mine, theirs in ((peer.control_fd, other.control_fd), (peer.data_fd, other.data_fd)):
                    with socket.socket(fileno=os.dup(mine)) as a, socket.socket(fileno=os.dup(theirs)) as b:
                        assert a.getpeername() == b.getsockname() and b.getpeername() == a.getsockname()
    close(results)


def test_loopback_sockets_within_a_host_do_not_disturb(hosts: MakeHosts) -> None:
    results = connected(hosts((2, 2)).placements, transport="tcp")
    assert all(result.host_of_rank == [0, 1, 2, 3] and result.memory_fd < 0 for result in results)
    assert all(peer.data_fd >= 0 for result in results for peer in result.peers)
    close(results)


def test_ranks_meet_again_and_again(hosts: MakeHosts) -> None:
    job = hosts((2, 1))
    epochs = set()
    for _ in range(3):
        results = connected(job.placements)
        epochs.add(tuple(result.epoch for result in results))
        close(results)
    assert len(epochs) == 3 and all(len(set(epoch)) == 1 for epoch in epochs)
    assert job.left_behind() == []


def test_the_board_forgets_earlier_meetings(hosts: MakeHosts) -> None:
    job = hosts((1, 1))
    close(connected(job.placements))
    once = len(job.board.entries)
    for _ in range(4):
        close(connected(job.placements))
    connect_all(job.placements[:1], timeout_s=0.0)  # an attempt that fails
    close(connected(job.placements))
    assert len(job.board.entries) <= 2 * once


def test_an_attempt_that_the_board_has_forgotten_is_over() -> None:
    board = Heard(["m.us.3.0.outcome", "m.us.3.4.card.1", "m.us.3.4.outcome", "m.us.2.9.outcome", "m.us.3.5.card.0"])
    attempt = Attempt(board, "us", 3)
    assert [attempt.ended(number) is None for number in range(7)] == [False] * 5 + [True] * 2
    assert attempt.first_open() == 5
    attempt.number = 5
    board.when_it_waits = ["m.us.3.5.outcome", "m.us.3.6.outcome"]  # and no card: the judge has forgotten it
    with pytest.raises(AttemptOverError):
        attempt.show_card(1, "here")


def test_a_card_that_comes_between_two_looks_is_not_waited_for() -> None:
    class Slow(Heard):
        """One entry comes with each look."""

        def get(self, key: str) -> Optional[str]:
            self._keys += self.when_it_waits[:1]
            del self.when_it_waits[:1]
            return super().get(key)

        def keys(self) -> list[str]:
            self.get("")
            return super().keys()

        def wait(self, seconds: float) -> None:
            assert card not in self._keys, "nothing more comes, so this would be slept through"

    card = "m.us.0.0.card.1"
    for earlier in range(4):
        board = Slow([])
        attempt = Attempt(board, "us", 0)
        attempt.number = 0
        board.when_it_waits = [*(f"other{number}" for number in range(earlier)), card]
        attempt.show_card(1, "here")


def test_ranks_meet_after_any_failures(hosts: MakeHosts) -> None:
    job = hosts((2, 1))
    end = time.monotonic() + 2.0

    def disturbed(rank: int) -> None:
        chance = random.Random(rank)

        def start(connections: Connections) -> None:
            if chance.random() < 0.2:
                raise ValueError("no room")

        options = {"epoch": 0, "region_bytes": REGION_BYTES, "start": start}
        while time.monotonic() < end:
            with contextlib.suppress(NetError, ValueError):
                bootstrap(job.placements[rank], timeout_s=chance.choice([0.0, 0.02, 0.2]), **options).close()
            time.sleep(chance.choice([0.0, 0.01, 0.05]))

    assert in_threads([lambda rank=rank: disturbed(rank) for rank in range(3)]) == [None] * 3
    results = connected(job.placements)
    assert len({result.epoch for result in results}) == 1
    close(results)


@contextlib.contextmanager
def black_hole() -> Iterator[int]:
    """A port of the loopback that answers nothing, as a host behind a cut link: its queue is full."""
    with contextlib.ExitStack() as opened:
        listener = opened.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(3):
            waiting = opened.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


@pytest.mark.parametrize("counts", [(1, 1), (1, 1, 2)])
def test_a_host_that_does_not_answer_is_named_by_all(
    hosts: MakeHosts, monkeypatch: pytest.MonkeyPatch, counts: tuple[int, ...]
) -> None:
    job = hosts(counts)
    real = Attempt.show_card
    monkeypatch.setattr(tcp_options, "options", lambda *_: (("TCP_USER_TIMEOUT", 300),))
    with black_hole() as port:

        def show_card(attempt: Attempt, rank: int, text: str) -> None:
            real(attempt, rank, f"{port} {text.partition(' ')[2]}" if rank == 0 else text)

        monkeypatch.setattr(Attempt, "show_card", show_card)
        begun = time.monotonic()
        results = connect_all(job.placements)
    assert time.monotonic() - begun < 5.0
    for rank, result in enumerate(results):
        # Rank 0 learns who has not heard from it.
        assert isinstance(result, ConnectError) and (result.ranks == (0,)) == (rank != 0), results
        assert "Rank 0 (host0) does not answer rank " in str(result)
        assert "Is the link between the two hosts cut" in str(result)
    assert job.left_behind() == []


def test_a_firewall_that_refuses_is_reported_with_the_port(hosts: MakeHosts, monkeypatch: pytest.MonkeyPatch) -> None:
    job = hosts((1, 1))
    real = Attempt.show_card
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # nobody listens there
        port = closed.getsockname()[1]

        def show_card(attempt: Attempt, rank: int, text: str) -> None:
            real(attempt, rank, f"{port} {text.partition(' ')[2]}" if rank == 0 else text)

        monkeypatch.setattr(Attempt, "show_card", show_card)
        monkeypatch.setattr(strangers, "TRIES", 2)
        results = connect_all(job.placements)
    told = (
        f"Rank 0 (host0) refused this rank's connection: Connection refused at 127.0.0.1 port {port}; does a firewall"
    )
    assert all(isinstance(result, ConnectError) and told in str(result) for result in results), results


def test_missing_ranks_are_named(hosts: MakeHosts) -> None:
    job = hosts((2, 2))
    results = connect_all([job.placements[0], job.placements[3]], timeout_s=0.5)
    assert all(isinstance(result, ConnectError) and "Ranks 1, 2 of 4" in str(result) for result in results)
    assert any(isinstance(result, StartTimeoutError) and result.ranks == (1, 2) for result in results)
    assert all("HOROVOD_START_TIMEOUT" in str(result) for result in results)
    assert job.left_behind() == []


def test_a_rank_that_ends_before_it_comes_is_known_on_all_hosts(hosts: MakeHosts) -> None:
    job = hosts((1, 1, 1))
    timer = threading.Timer(0.2, job.board.post, ("ended.2", "was killed by SIGKILL"))
    timer.start()
    begin = time.monotonic()
    results = connect_all(job.placements[:2], timeout_s=30)
    assert time.monotonic() - begin < 5
    assert all(isinstance(result, ConnectError) and result.ranks == (2,) for result in results), results
    assert any("Rank 2 was killed by SIGKILL" in str(result) for result in results)


def test_the_first_to_end_is_to_blame(hosts: MakeHosts) -> None:
    job = hosts((2, 1, 1))
    job.board.post("ended.3", "was killed by SIGKILL")
    job.board.post("ended.1", "exited with code 1")
    with pytest.raises(ConnectError, match="Rank 3 was killed by SIGKILL"):
        bootstrap(job.placements[0], epoch=0, region_bytes=REGION_BYTES, timeout_s=20)


def test_a_rank_that_dies_while_connecting_is_named_on_the_other_host(hosts: MakeHosts) -> None:
    job = hosts((1, 1))

    def die(connections: Connections) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    options = {"epoch": 0, "region_bytes": REGION_BYTES, "timeout_s": 30}
    pid = forked(lambda: bootstrap(job.placements[1], start=die, **options) and None)
    begin = time.monotonic()
    with pytest.raises(ConnectError, match="Rank 1 .*while the job was connecting") as raised:
        bootstrap(job.placements[0], **options)
    os.waitpid(pid, 0)
    assert raised.value.ranks == (1,) and time.monotonic() - begin < 10


def test_an_engine_that_does_not_start_is_known_on_all_hosts(hosts: MakeHosts) -> None:
    def fail(connections: Connections) -> None:
        raise ValueError("no room for a trace")

    job = hosts((2, 1))
    options = {"epoch": 0, "region_bytes": REGION_BYTES, "timeout_s": 60}
    places = job.placements
    results = in_threads(
        [
            lambda: bootstrap(places[0], **options),
            lambda: bootstrap(places[1], **options),
            lambda: bootstrap(places[2], start=fail, **options),
        ]
    )
    assert isinstance(results[2], ValueError)
    assert all(isinstance(result, ConnectError) and "no room for a trace" in str(result) for result in results[:2])
    close(connected(places))


def test_every_descriptor_is_accounted_for(hosts: MakeHosts) -> None:
    job = hosts((2, 1))
    close(connected(job.placements))
    before = open_descriptors()
    results = connected(job.placements)
    close(results)
    time.sleep(0.2)  # the keeper of the board closes its ends a moment later
    assert len(open_descriptors() - before) == 3, "the claims of the second meeting alone"


def test_another_secret_is_refused(hosts: MakeHosts) -> None:
    job = hosts((1, 1))
    liar = dataclasses.replace(job.placements[1], secret=bytes(32))
    results = connect_all([job.placements[0], liar], timeout_s=3)
    assert all(isinstance(result, ConnectError) for result in results)
    assert any("secret" in str(result) for result in results)
    close(connected(job.placements))


def test_strangers_at_the_door_do_not_disturb(hosts: MakeHosts) -> None:
    job = hosts((1, 1))
    stop = threading.Event()

    def knock() -> None:
        while not stop.is_set():
            for key, value in list(job.board.entries.items()):
                if ".card." in key:
                    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", int(value.split()[0]))):
                        pass
            time.sleep(0.001)

    thread = threading.Thread(target=knock, daemon=True)
    thread.start()
    try:
        for _ in range(3):
            close(connected(job.placements))
    finally:
        stop.set()
        thread.join(10)


def test_a_launcher_that_has_ended_is_reported(hosts: MakeHosts) -> None:
    job = hosts((1, 1))
    timer = threading.Timer(0.3, job.board.close)
    timer.start()
    begin = time.monotonic()
    with pytest.raises(ConnectError, match="The launcher has ended"):
        bootstrap(job.placements[0], epoch=0, region_bytes=REGION_BYTES, timeout_s=60)
    assert time.monotonic() - begin < 10
    timer.join()
    with pytest.raises(MeetingError, match="does not listen at .*/board"):
        bootstrap(job.placements[0], epoch=0, region_bytes=REGION_BYTES, timeout_s=60)


def test_an_address_of_another_host_is_refused(hosts: MakeHosts) -> None:
    job = hosts((1, 1), address="192.0.2.1")
    results = connect_all(job.placements, timeout_s=10)
    assert any("cannot listen for other hosts at 192.0.2.1" in str(result) for result in results)


def test_interfaces_are_looked_up_on_each_host(hosts: MakeHosts) -> None:
    job = hosts((1, 1), address="", interfaces=("nowhere0", "lo"))
    results = connect_all(job.placements)
    assert any("interface lo has the address 127.0.0.1, which means a different machine" in str(r) for r in results)
    results = connect_all([dataclasses.replace(place, interfaces=("nowhere0",)) for place in job.placements])
    assert any(isinstance(result, PlacementError) and "nowhere0" in str(result) for result in results)
    assert any("Its interfaces are: lo" in str(result) for result in results)
    results = connect_all([dataclasses.replace(place, interfaces=()) for place in job.placements])
    assert any("The address at which other hosts reach this one is not known" in str(result) for result in results)


def test_ipv6(hosts: MakeHosts) -> None:
    job = hosts((1, 1), address="::1")
    close(connected(job.placements))


@pytest.mark.parametrize(
    "text",
    ["", "x", "1 127.0.0.1", "0 127.0.0.1 a", "70000 127.0.0.1 a", "5 1.2.3.4.5 a", "5 host a", "5 127.0.0.1 a b"],
)
def test_cards_that_cannot_be_read(text: str) -> None:
    with pytest.raises(ConnectError, match="Rank 3 shows a card"):
        parse_card(3, text)


@pytest.mark.parametrize("card", [Card(1, "10.0.0.1", "a"), Card(65535, "fe80::1%eth0", "node-1.example.org")])
def test_cards_survive_the_board(card: Card) -> None:
    assert parse_card(0, card.text()) == card


class TestCodes:
    """Frames between hosts."""

    def test_frames_arrive(self) -> None:
        here, there = FrameCodes(SECRET, connector=True), FrameCodes(SECRET, connector=False)
        for _ in range(3):
            assert _read(there, _coded(here)) == Ready()
            assert _read(here, _coded(there)) == Ready()

    @pytest.mark.parametrize("position", range(len(frame(Ready())) + 16))
    def test_a_changed_byte_is_noticed(self, position: int) -> None:
        data = bytearray(_coded(FrameCodes(SECRET, connector=True)))
        data[position] ^= 1
        with contextlib.suppress(NetError):
            assert _read(FrameCodes(SECRET, connector=False), bytes(data)) is None, "a longer frame is waited for"

    def test_a_repeated_frame_is_refused(self) -> None:
        there = FrameCodes(SECRET, connector=False)
        data = _coded(FrameCodes(SECRET, connector=True))
        assert _read(there, data) == Ready()
        with pytest.raises(NetError, match="Frame 2 does not carry the code"):
            _read(there, data)

    def test_a_reflected_frame_is_refused(self) -> None:
        here = FrameCodes(SECRET, connector=True)
        with pytest.raises(NetError):
            _read(here, _coded(here))

    def test_another_key_is_refused(self) -> None:
        with pytest.raises(NetError):
            _read(FrameCodes(bytes(16), connector=False), _coded(FrameCodes(SECRET, connector=True)))


def _coded(codes: FrameCodes) -> bytes:
    data = frame(Ready())
    return data + codes.of_next_sent(data)


def _read(codes: FrameCodes, data: bytes) -> object:
    reader = FrameReader(AFTER_AUTHENTICATION)
    reader.codes = codes
    reader.feed(data)
    return reader.next()
