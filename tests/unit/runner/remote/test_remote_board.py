"""The board of a job, with clients of its own user: the first entry of a key stands, for everybody, in one order."""

from __future__ import annotations

import os
import random
import resource
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from horovod._net.handshake.frames.messages import ON_A_BOARD, FrameReader, Post, Posts, Ready, frame
from horovod._net.meeting.entries import Arbiter, Standing, key_of
from horovod.runner.loop import Loop
from horovod.runner.remote.host_side import board


class Place:
    """Several boards, as on several hosts, with one arbiter."""

    def __init__(self, folder: Path, hosts: int = 2, ranks: int = 4) -> None:
        self.loop = Loop()
        self.arbiter = Arbiter(ranks)
        self.visits: list[tuple[int, bool]] = []
        self.boards = []
        self.paths = []
        for number in range(hosts):
            path = folder / f"host{number}"
            path.mkdir()
            fd = os.open(path, os.O_RDONLY)
            self.boards.append(
                board.Board(self.loop, fd, ranks, self.post, lambda pid, come: self.visits.append((pid, come)))
            )
            os.close(fd)
            self.paths.append(path / board.SOCKET_NAME)

    def post(self, text: str) -> None:
        if self.arbiter.post(text):
            for each in self.boards:
                each.stand(text)

    def turn(self, times: int = 50) -> None:
        for _ in range(times):
            self.loop.turn(0)

    def client(self, host: int = 0) -> Client:
        """One that has not read anything."""
        return Client(self, self.paths[host])

    def ready(self, host: int = 0) -> Client:
        """One that has heard what stands."""
        made = self.client(host)
        *made.stood, last = made.heard()
        assert last == "Ready"
        return made


class Client:
    """A rank's side."""

    def __init__(self, place: Place, path: Path) -> None:
        self._place = place
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(path))
        self.socket.setblocking(False)
        self._reader = FrameReader(ON_A_BOARD)
        self.stood: list[str] = []

    def post(self, *texts: str) -> None:
        self.socket.send(b"".join(frame(Post(text)) for text in texts))

    def heard(self) -> list[str]:
        """What has come since, once nothing more comes."""
        found = []
        while True:
            self._place.turn()
            try:
                data = self.socket.recv(1 << 20)
            except BlockingIOError:
                return found
            if not data:
                return [*found, "end"]
            self._reader.feed(data)
            while (message := self._reader.next()) is not None:
                if isinstance(message, Posts):
                    found += message.entries()
                else:
                    found.append(message.text if isinstance(message, Post) else type(message).__name__)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    for each in made.boards:
        each.close()
    made.loop.close()


def test_the_socket_is_its_owner_s(place: Place) -> None:
    assert stat.S_IMODE(place.paths[0].stat().st_mode) == 0o600


def test_the_first_entry_of_a_key_stands_for_all_its_author_included(place: Place) -> None:
    first, second = place.ready(0), place.ready(1)
    first.post("a=1")
    assert first.heard() == ["a=1"]
    second.post("a=2", "b=2")
    assert second.heard() == ["a=1", "b=2"]
    assert first.heard() == ["b=2"]


def test_who_comes_late_hears_all_that_stands(place: Place) -> None:
    place.ready(0).post("a=1", "b=2", "c=")
    place.turn()
    late = place.ready(1)
    assert late.stood == ["a=1", "b=2", "c="]
    assert late.heard() == []


def test_all_hear_one_order(place: Place) -> None:
    choose = random.Random(7)
    clients = [place.ready(number % 2) for number in range(12)]
    heard: list[list[str]] = [[] for _ in clients]
    for _ in range(400):
        number = choose.randrange(len(clients))
        clients[number].post(f"key.{choose.randrange(150)}={number}")
        if choose.random() < 0.3:
            heard[number] += clients[number].heard()
    for number, client in enumerate(clients):
        heard[number] += client.heard()
    assert all(each == heard[0] for each in heard)
    keys = [key_of(text) for text in heard[0]]
    assert len(set(keys)) == len(keys) > 100


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\0" * 100,
        frame(Post("no entry")),
        frame(Ready()),
        frame(Post("UPPER=1")),
        frame(Post("=1")),
        frame(Post("a" * 97 + "=1")),
        frame(Post("a=1"))[:-4] + b"\xff" * 400,
        b"HVDN\x01\x0b\x00\x00\xff\xff\xff\xff",
        b"HVDN\x01\x02\x00\x00\x00\x00\x00\x00",
    ],
)
def test_garbage_costs_its_sender_the_connection_and_nobody_else(place: Place, data: bytes) -> None:
    good, bad = place.client(), place.client()
    bad.socket.send(data)
    assert bad.heard()[-1:] == ["end"]
    good.post("b=2")
    assert "b=2" in good.heard()


def test_random_bytes_never_harm(place: Place) -> None:
    choose = random.Random(3)
    good = place.client()
    for number in range(200):
        bad = place.client(number % 2)
        bad.socket.send(frame(Post("x=1"))[: choose.randrange(16)] + choose.randbytes(choose.randrange(1, 200)))
        place.turn(5)
        bad.socket.close()
    good.post("still=here")
    assert "still=here" in good.heard()


def test_who_does_not_read_is_dropped_and_holds_nobody_up(tmp_path: Path) -> None:
    place = Place(tmp_path, hosts=1, ranks=64)
    slow, quick = place.client(), place.ready()
    slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    value = "v" * 4000
    heard = []
    began = time.monotonic()
    for number in range(600):
        quick.post(f"key{number}={value}")
        heard += quick.heard()
    assert heard == [f"key{number}={value}" for number in range(600)]
    assert time.monotonic() - began < 20.0
    assert slow.heard()[-1] == "end"
    # What stands already is not held against a client that comes now, however much it is.
    assert len(place.ready().stood) == 600


def test_what_stands_is_bounded() -> None:
    arbiter = Arbiter(1)
    stood = [arbiter.post(f"key{number}={'v' * 4000}") for number in range(400)]
    assert stood == [True] * 261 + [False] * 139
    assert arbiter.full


def attempt(meeting: int, number: int, who: str = "us") -> list[str]:
    """What two ranks post to meet."""
    return [f"m.{who}.{meeting}.{number}.{what}" for what in ("card.0=here", "card.1=there", "outcome=met")]


def test_an_attempt_is_forgotten_once_a_later_one_has_ended() -> None:
    standing = Standing()
    first, second, third = attempt(0, 0), attempt(0, 1), attempt(1, 0)
    kept = ["ended.1=was killed", *attempt(0, 0, "others")]
    for text in (*kept, *first, *second[:2]):
        assert standing.add(text)
    assert list(standing) == [*kept, *first, *second[:2]], "nothing, while the later one goes on"
    assert standing.add(second[2])
    assert list(standing) == [*kept, *second]
    assert [standing.add(text) for text in third] == [True] * 3
    assert list(standing) == [*kept, *third]
    assert standing.bytes == sum(map(len, (*kept, *third)))
    # What was forgotten never stands again, also in other words.
    assert not any(standing.add(text + "?") for text in (*first, *second))
    assert standing.add("m.us.1.0.card.2=late"), "the last to have ended is not forgotten"


def test_ranks_meet_for_ever_on_one_board() -> None:
    arbiter = Arbiter(1)
    for number in range(20000):
        assert all(arbiter.post(text) for text in attempt(number, 0))
    assert not arbiter.full


def test_who_was_there_hears_what_is_forgotten_and_who_comes_then_does_not(place: Place) -> None:
    there = place.client()
    first, second = attempt(0, 0), attempt(0, 1)
    author = place.ready(1)
    author.post(*first, *second)
    assert author.heard() == [*first, *second]
    author.post(*first)
    assert author.heard() == []
    assert there.heard() == ["Ready", *first, *second]
    assert place.ready().stood == second


def test_more_clients_than_there_is_room_for_are_sent_away(tmp_path: Path) -> None:
    place = Place(tmp_path, hosts=1, ranks=1)
    clients = []
    for _ in range(80):
        clients.append(place.client())
        place.turn(2)
    assert [client.heard() for client in clients].count(["end"]) == 8
    clients[0].post("a=1")
    assert clients[1].heard() == ["a=1"]


def test_without_a_descriptor_nobody_is_let_in_and_the_loop_sleeps(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    there = place.ready()
    waits = [place.client(), place.client()]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        began_s = time.monotonic()
        for _ in range(5):
            place.loop.turn(0.1)
        slept_s = time.monotonic() - began_s
        there.post("a=1")
        assert there.heard() == ["a=1"], "who is there goes on"
        place.boards[0].socket.look_again()
        place.turn()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert slept_s > 0.35, "who waits to be let in keeps waking the loop"
    assert len([record for record in caplog.records if "Too many open files" in record.message]) == 1
    place.turn()
    assert place.visits == [(os.getpid(), True)], "not before the next look"
    place.boards[0].socket.look_again()
    assert [client.heard() for client in waits] == [["a=1", "Ready"]] * 2


def test_while_the_board_is_held_news_go_out_and_nothing_is_heard(place: Place) -> None:
    client, other = place.ready(0), place.ready(1)
    place.boards[0].hold(True)
    client.post("a=1")
    other.post("b=2")
    assert client.heard() == ["b=2"]
    place.boards[0].hold(False)
    assert client.heard() == ["a=1"]


def test_a_client_that_posts_without_end_is_heard_in_turns(place: Place) -> None:
    """So what is on its way to the arbiter stays bounded, and the agent can beat."""
    heard: list[str] = []

    class Busy(Arbiter):
        def post(self, text: str) -> bool:
            heard.append(text)
            place.boards[0].hold(True)
            return False

    place.arbiter = Busy(1)
    client = place.ready()
    client.post(*(f"key{number}={'v' * 4000}" for number in range(20)))
    place.turn()
    assert 0 < len(heard) < 6
    place.boards[0].hold(False)
    place.turn()
    assert 6 < len(heard) < 12


def test_visits_are_reported(place: Place) -> None:
    client = place.client()
    place.turn()
    client.socket.close()
    place.turn()
    assert place.visits == [(os.getpid(), True), (os.getpid(), False)]


@pytest.mark.parametrize(("text", "key"), [("a.b-c_9=x=y", "a.b-c_9"), ("a=", "a"), ("a", None), ("é=1", None)])
def test_entries(text: str, key: str) -> None:
    assert key_of(text) == key


def test_an_entry_has_at_most_4096_bytes() -> None:
    assert key_of("a=" + "é" * 2047) == "a"
    assert key_of("a=" + "é" * 2047 + "x") is None
