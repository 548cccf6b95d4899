"""The roster of an elastic job from both sides, and those who have no business there."""

from __future__ import annotations

import contextlib
import os
import resource
import select
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from horovod._net.failures import ConnectError, ProtocolError
from horovod._net.roster import SOCKET_NAME, Dismissal, Lines, News, Roster, Seat, heard, packed, words
from horovod.runner.elastic.roster_keeper import RosterKeeper
from horovod.runner.loop import Loop
from horovod.runner.processes.crew import Asks, Bereft


class Kept:
    """A roster that is served when a test says so."""

    def __init__(self, directory: Path) -> None:
        self.loop = Loop()
        self.found: list[Asks | Bereft] = []
        folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        self.keeper = RosterKeeper(self.loop, folder, self.found.append)
        os.close(folder)

    def hear(self, count: int = 1) -> list[Asks | Bereft]:
        """Serves until so many messages have come."""
        found: list[Asks | Bereft] = []
        while len(found) < count:
            found += self.turn(10.0)
        return found

    def turn(self, patience_s: float) -> list[Asks | Bereft]:
        ready, _, _ = select.select([self.loop], [], [], patience_s)
        assert ready, "nothing has come"
        return self.served()

    def served(self) -> list[Asks | Bereft]:
        self.loop.turn(0)
        found, self.found[:] = list(self.found), []
        return found

    def close(self) -> None:
        self.keeper.close()
        self.loop.close()


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    found = Kept(tmp_path)
    yield found
    found.close()


def asking(roster: Roster, version: tuple[int, int], why: str = "") -> tuple[threading.Thread, list[Seat | Dismissal]]:
    answers: list[Seat | Dismissal] = []

    def ask() -> None:
        with contextlib.suppress(ConnectError):  # not every test answers before it closes the launcher's side
            answers.append(roster.ask(version, why))

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    return thread, answers


def test_a_worker_asks_and_gets_its_place(kept: Kept, tmp_path: Path) -> None:
    roster = Roster(str(tmp_path), 7)
    thread, answers = asking(roster, (3, 12), "Rank 1 does not answer")
    assert kept.hear() == [Asks(7, (3, 12), "Rank 1 does not answer")]
    kept.keeper.say(7, words(News(1, 5.5)))  # of the epoch that it has left
    seat = Seat(9, 1, 2, 1, 2, 0, 1, (4, 7), True, "10.0.0.7")
    kept.keeper.say(7, words(seat))
    thread.join(10)
    assert answers == [seat]
    assert roster.news() == []
    kept.keeper.say(7, words(News(2, 6.5)))
    assert roster.news() == [News(2, 6.5)]
    roster.say_lost()
    assert kept.hear() == [Bereft(7)]
    roster.close()


def test_news_that_come_together_with_a_place_are_not_lost(kept: Kept, tmp_path: Path) -> None:
    roster = Roster(str(tmp_path), 7)
    seat = Seat(9, 1, 2, 1, 2, 0, 1, (4, 7), True)
    thread, answers = asking(roster, (3, 12))
    kept.hear()
    client = kept.keeper._of_worker[7]
    client.sock.sendall(b"".join(packed(words(each)) for each in (News(1, 5.5), seat, News(2, 6.5), News(1, 6.6))))
    thread.join(10)
    assert answers == [seat]
    assert roster.news() == [News(2, 6.5), News(1, 6.6)]
    assert roster.news() == []
    roster.close()


def test_a_worker_without_a_place(kept: Kept, tmp_path: Path) -> None:
    roster = Roster(str(tmp_path), 0)
    thread, answers = asking(roster, (-1, 0))
    kept.hear()
    kept.keeper.say(0, words(Dismissal("no slot")))
    thread.join(10)
    assert answers == [Dismissal("no slot")]
    roster.close()


def test_a_process_that_a_worker_has_started_is_not_the_worker(kept: Kept, tmp_path: Path) -> None:
    first, second = Roster(str(tmp_path), 0), Roster(str(tmp_path), 0)
    asking(first, (-1, 0))
    kept.hear()
    second.say_lost()
    assert kept.turn(10.0) == []
    with pytest.raises(ConnectError, match="the launcher of this elastic job does not answer"):
        second.ask((-1, 0))
    kept.keeper.say(0, words(Dismissal("still there")))


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b'{"ask": "x"}\n',
        b"[]\n",
        b"\xff\xfe\n",
        b"x" * 5000,
        b'{"lost": []}\n',
        b"{}\n",
        b'{"ask": 1, "epoch": 0, "commits": 99999999999999999999}\n',
    ],
)
def test_rubbish_is_dropped_and_the_roster_goes_on(kept: Kept, tmp_path: Path, data: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(str(tmp_path / SOCKET_NAME))
        stranger.sendall(data)
        stranger.settimeout(10)
        dropped = select.poll()
        dropped.register(stranger, select.POLLRDHUP)
        while not dropped.poll(0):
            assert kept.turn(10.0) == []
        with contextlib.suppress(ConnectionResetError):
            assert stranger.recv(1) == b""
    roster = Roster(str(tmp_path), 1)
    asking(roster, (0, 0))
    assert kept.hear() == [Asks(1, (0, 0))]
    kept.keeper.say(1, words(Dismissal("done")))


def test_without_descriptors_a_worker_waits_and_the_others_are_heard(
    kept: Kept, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    there = Roster(str(tmp_path), 0)
    asking(there, (0, 1))
    kept.hear()
    comes = Roster(str(tmp_path), 1)
    asking(comes, (-1, 0))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        assert kept.turn(10.0) == []
        assert kept.keeper.socket.again_s is not None
        assert select.select([kept.loop], [], [], 0.3)[0] == [], "who waits to be let in keeps waking the loop"
        there.say_lost()
        assert kept.hear() == [Bereft(0)], "who is there goes on"
        kept.keeper.socket.look_again()
        assert kept.served() == [], "there is no room yet"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len([record for record in caplog.records if "Too many open files" in record.message]) == 1
    kept.keeper.socket.look_again()
    assert kept.served() + kept.served() == [Asks(1, (-1, 0))]
    kept.keeper.say(1, words(Dismissal("done")))


def test_what_a_worker_has_said_is_heard_at_once_when_its_end_is_known(kept: Kept, tmp_path: Path) -> None:
    roster = Roster(str(tmp_path), 4)
    asking(roster, (1, 2))
    kept.hear()
    roster.say_lost()
    kept.keeper.hear_all()
    assert kept.found == [Bereft(4)]
    roster.close()


def test_a_worker_without_a_launcher_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConnectError, match="Worker 3 cannot ask for its place"):
        Roster(str(tmp_path), 3)


def test_a_launcher_that_dies_is_an_error_for_who_waits(kept: Kept, tmp_path: Path) -> None:
    roster = Roster(str(tmp_path), 0)
    failures: list[BaseException] = []

    def ask() -> None:
        try:
            roster.ask((-1, 0))
        except ConnectError as error:
            failures.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    kept.hear()
    kept.keeper.close()
    thread.join(10)
    assert len(failures) == 1


@pytest.mark.parametrize("message", [{}, {"place": {}}, {"place": 3}, {"news": "x", "at": 1}, {"news": 1}])
def test_what_no_launcher_says(message: dict[str, object]) -> None:
    with pytest.raises(ProtocolError):
        heard(message)


def test_messages_come_in_any_pieces() -> None:
    data = packed({"ask": 1}) + packed({"ask": 2})
    lines = Lines()
    found = [message for index in range(len(data)) for message in lines.feed(data[index : index + 1])]
    assert found == [{"ask": 1}, {"ask": 2}]
