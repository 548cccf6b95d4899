"""A board to which any number of processes come and go, as those of a data service do."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from net_boards import PATIENCE_S, SECRET, logged, refuses, until

from horovod._net.failures import ConnectError
from horovod._net.handshake.boards import kept_board
from horovod._net.handshake.boards.board_call import call
from horovod._net.handshake.boards.board_link import BoardLink
from horovod._net.handshake.boards.kept_board import NUMBER, KeptBoard, credentials_of
from horovod._net.handshake.roll_call import listen


class OpenBoard:
    """A board to which anybody comes that holds the secret."""

    def __init__(self) -> None:
        listener = listen("127.0.0.1")
        self.port = listener.getsockname()[1]
        self.keeper = KeptBoard(credentials_of(SECRET, "open", 1, 1), listener, None, "the test's keeper")
        self.keeper.start()

    def come(self, secret: bytes = SECRET) -> BoardLink:
        return call(credentials_of(secret, "open", 0, 1), "127.0.0.1", self.port, time.monotonic() + PATIENCE_S)


@pytest.fixture
def open_board() -> Iterator[OpenBoard]:
    made = OpenBoard()
    yield made
    made.keeper.stop()


def test_an_open_board_numbers_all_that_come_and_tells_who_goes(open_board: OpenBoard) -> None:
    for number in range(3):
        passing = open_board.come()
        assert passing.get(NUMBER) == str(number)
        passing.close()
    stays = open_board.come()
    assert stays.get(NUMBER) == "3"
    assert [until(stays, f"ended.{number}") for number in range(3)] == ["ended"] * 3
    assert not refuses(open_board.port)
    stays.close()


def test_an_open_board_is_closed_to_strangers(open_board: OpenBoard, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ConnectError, match="does not hold this job's secret"):
        open_board.come(bytes(32))
    board = open_board.come()
    assert board.keys() == [NUMBER]
    logged(caplog, "the test's keeper, connecting: a process at 127.0.0.1 left after the proof of the secret")
    board.close()


def test_the_last_news_are_heard_before_the_end(open_board: OpenBoard) -> None:
    hears, posts = open_board.come(), open_board.come()
    assert hears.news() == [(NUMBER, "0")] and hears.news() == []
    for number in range(100):
        posts.post(f"entry.{number}", "x")
    until(posts, "entry.99")
    open_board.keeper.stop()
    with pytest.raises(ConnectError):
        while True:  # until the kernel has heard that nobody reads there
            hears.post("too", "late")
            time.sleep(0.01)
    heard = []
    with pytest.raises(ConnectError, match="has ended"):
        while True:
            heard += hears.news()
    assert heard == [(f"entry.{number}", "x") for number in range(100)]
    hears.close()
    posts.close()


def test_what_is_posted_to_a_board_that_ends_cuts_off_no_news(open_board: OpenBoard) -> None:
    hears, posts = open_board.come(), open_board.come()
    for number in range(100):  # more than the kernel sends to a process that does not read
        posts.post(f"entry.{number}", "x" * 3000)
    until(posts, "entry.99")
    end = threading.Thread(target=open_board.keeper.stop)
    end.start()
    while not refuses(open_board.port):
        time.sleep(0.001)
    for _ in range(10):
        hears.post("too", "late")
        time.sleep(0.01)
    heard = []
    with pytest.raises(ConnectError, match="has ended"):
        while True:
            heard += hears.news()
    assert [key for key, _ in heard] == [NUMBER, *(f"entry.{number}" for number in range(100))]
    hears.close()
    posts.close()
    end.join(0.5)
    assert not end.is_alive()


def test_a_keeper_that_stops_tells_what_it_has_kept_back(
    open_board: OpenBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_board, "_QUIET_S_PER_RANK", 60.0)
    monkeypatch.setattr(kept_board, "_LONGEST_QUIET_S", 60.0)
    hears, posts = open_board.come(), open_board.come()
    posts.post("at", "once")
    until(hears, "at")
    posts.post("kept", "back")
    deadline = time.monotonic() + PATIENCE_S
    while open_board.keeper._news != ["kept=back"]:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    open_board.keeper.stop()
    assert hears.news()[-1] == ("kept", "back")
    hears.close()
    posts.close()
