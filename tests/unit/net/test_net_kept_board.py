"""A job on several hosts whose board rank 0 keeps: as on one of the launcher's, and nobody else gets near it."""

from __future__ import annotations

import dataclasses
import errno
import gc
import os
import pathlib
import resource
import socket
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from net_boards import PATIENCE_S, SECRET, logged, refuses, until
from net_ranks import connect_all, in_threads, unique_key

from horovod._net.clusters.placement import Placement
from horovod._net.failures import ConnectError
from horovod._net.handshake.boards.board_call import call
from horovod._net.handshake.boards.board_link import BoardLink
from horovod._net.handshake.boards.kept_board import KeptBoard, credentials_of
from horovod._net.handshake.door import Door
from horovod._net.handshake.frames import messages
from horovod._net.handshake.frames.links import Link
from horovod._net.handshake.frames.watch import Source, Watch
from horovod._net.handshake.roll_call import listen
from horovod._net.meeting import long_list


class Job:
    """The board of a job of so many ranks, which may come."""

    def __init__(self, size: int) -> None:
        self.key, self.size = unique_key(), size
        listener = listen("127.0.0.1")
        self.port = listener.getsockname()[1]
        self.keeper = KeptBoard(credentials_of(SECRET, self.key, size, size), listener, range(size))
        self.keeper.start()
        self.links: dict[int, BoardLink] = {}

    def come(self, rank: int, secret: bytes = SECRET, patience_s: float = PATIENCE_S) -> BoardLink:
        credentials = credentials_of(secret, self.key, rank, self.size)
        self.links[rank] = call(credentials, "127.0.0.1", self.port, time.monotonic() + patience_s)
        return self.links[rank]

    def all_come(self) -> list[BoardLink]:
        results = in_threads([lambda r=r: self.come(r) for r in range(self.size)])
        assert all(isinstance(each, BoardLink) for each in results), results
        return results

    def close(self) -> None:
        for link in self.links.values():
            link.close()
        self.keeper.stop()


@pytest.fixture
def jobs() -> Iterator[Any]:
    made: list[Job] = []

    def make(size: int) -> Job:
        made.append(Job(size))
        return made[-1]

    yield make
    for job in made:
        job.close()


def test_the_first_post_of_a_key_wins_for_all(jobs: Any) -> None:
    boards = jobs(3).all_come()
    for number, board in enumerate(boards):
        board.post("who", str(number))
    assert len({until(board, "who") for board in boards}) == 1
    boards[0].post("later", "x")
    assert [until(board, "later") for board in boards] == ["x"] * 3
    assert all(board.before("who", "later") for board in boards)


def test_who_comes_later_hears_what_stands(jobs: Any) -> None:
    job = jobs(2)
    job.come(1).post("where", "here")
    until(job.links[1], "where")
    assert job.come(0).get("where") == "here"


def test_nobody_listens_once_all_have_come(jobs: Any) -> None:
    job = jobs(2)
    assert not refuses(job.port)
    job.all_come()
    deadline = time.monotonic() + PATIENCE_S
    while not refuses(job.port):
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_the_end_of_a_rank_is_reported(jobs: Any) -> None:
    boards = jobs(3).all_come()
    boards[2].close()
    assert until(boards[0], "ended.2") == until(boards[1], "ended.2") == "ended"


def test_who_lacks_the_secret_finds_no_board_and_disturbs_nobody(jobs: Any, caplog: pytest.LogCaptureFixture) -> None:
    job = jobs(2)
    with pytest.raises(ConnectError, match="does not hold this job's secret"):
        job.come(0, secret=bytes(32))
    boards = job.all_come()
    boards[0].post("all", "well")
    assert until(boards[1], "all") == "well"


def test_a_process_keeps_nothing_of_boards_that_are_gone() -> None:
    job = Job(1)
    job.all_come()
    gone = [weakref.ref(each) for each in (job.keeper, job.links[0])]
    job.close()
    del job
    gc.collect()
    assert [each() for each in gone] == [None, None]


def test_a_keeper_makes_room_for_all_ranks(jobs: Any) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = max(map(int, os.listdir("/proc/self/fd"))) + 100
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, hard))
    try:
        size = few
        jobs(size)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 2 * size
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_who_finds_no_descriptor_waits_until_there_is_one(jobs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    accept, refused = Door.accept, []

    def accept_later(door: Door, listener: socket.socket) -> Iterator[Link]:
        if not refused:
            refused.append(door)
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        yield from accept(door, listener)

    monkeypatch.setattr(Door, "accept", accept_later)
    boards = jobs(2).all_come()
    assert refused
    boards[0].post("all", "well")
    assert until(boards[1], "all") == "well"


def test_a_board_whose_listener_is_gone_says_so_and_ends(
    jobs: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def accept(door: Door, listener: socket.socket) -> Iterator[Link]:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    monkeypatch.setattr(Door, "accept", accept)
    job = jobs(2)
    with pytest.raises(ConnectError):
        job.come(1)
    assert "the board of this job can no longer be kept" in caplog.text


def test_a_rank_cannot_come_twice(jobs: Any) -> None:
    job = jobs(2)
    job.come(1)
    with pytest.raises(ConnectError, match="cannot be reached at 127.0.0.1"):
        call(credentials_of(SECRET, job.key, 1, 2), "127.0.0.1", job.port, time.monotonic() + 0.3)
    job.come(0).post("still", "well")
    assert until(job.links[1], "still") == "well"


def test_strangers_that_talk_nonsense_are_dropped(jobs: Any) -> None:
    job = jobs(2)
    for _ in range(50):
        with socket.create_connection(("127.0.0.1", job.port)) as sock:
            sock.sendall(os.urandom(100))
    job.all_come()[0].post("all", "well")
    assert until(job.links[1], "all") == "well"


def listens(source: Source) -> bool:
    return isinstance(source, socket.socket) and bool(source.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


def test_a_stranger_in_the_moment_in_which_the_last_rank_comes_ends_nothing(
    jobs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    added, removed, heard = Watch.add, Watch.remove, Watch.wait
    listening: list[tuple[Watch, Source]] = []

    def add(watch: Watch, source: Source) -> None:
        added(watch, source)
        if listens(source):
            listening.append((watch, source))

    def remove(watch: Watch, source: Source) -> None:
        removed(watch, source)
        if (watch, source) in listening:
            listening.remove((watch, source))

    def with_a_stranger(watch: Watch, seconds: float) -> list[Source]:
        before = [source for its, source in listening if its is watch]
        sources = heard(watch, seconds)
        return sources + [source for source in before if source not in sources]

    monkeypatch.setattr(Watch, "add", add)
    monkeypatch.setattr(Watch, "remove", remove)
    monkeypatch.setattr(Watch, "wait", with_a_stranger)
    boards = jobs(2).all_come()
    boards[0].post("all", "well")
    assert until(boards[1], "all") == "well"


def test_what_is_no_entry_ends_the_connection_and_nothing_else(jobs: Any) -> None:
    boards = jobs(3).all_come()
    boards[1].post("NOT A KEY", "x")
    assert until(boards[0], "ended.1") == "ended"
    boards[2].post("all", "well")
    assert until(boards[0], "all") == "well"


def test_a_board_that_is_not_there_is_named_with_a_remedy(jobs: Any) -> None:
    with listen("127.0.0.1") as listener:
        port = listener.getsockname()[1]
    with pytest.raises(ConnectError, match=r"where it keeps the board of this job: .* HOROVOD_GLOO_IFACE") as caught:
        call(credentials_of(SECRET, "job", 1, 2), "127.0.0.1", port, time.monotonic() + 0.2)
    assert caught.value.ranks == (0,)


def test_the_death_of_the_keeper_is_reported(jobs: Any) -> None:
    job = jobs(1)
    board = job.come(0)
    job.keeper.stop()
    with pytest.raises(ConnectError, match="Rank 0, which keeps the board of this job, has ended"):
        until(board, "nothing")


def test_where_nobody_listens_who_is_not_patient_does_not_wait() -> None:
    with listen("127.0.0.1") as listener:
        port = listener.getsockname()[1]
    start = time.monotonic()
    with pytest.raises(ConnectError, match="Connection refused"):
        call(credentials_of(SECRET, "job", 1, 2), "127.0.0.1", port, time.monotonic() + PATIENCE_S)
    assert time.monotonic() - start < 1


def test_meetings_that_are_over_are_forgotten_between_two(jobs: Any) -> None:
    board = jobs(1).all_come()[0]
    for meeting in range(3):
        board.post(f"m.ab.{meeting}.0.card.0", "4000 127.0.0.1 host")
        board.post(f"m.ab.{meeting}.0.outcome", "met")
        until(board, f"m.ab.{meeting}.0.outcome")
    assert len(board.keys()) == 6
    board.forget()
    assert board.keys() == ["m.ab.2.0.card.0", "m.ab.2.0.outcome"]
    board.post("m.ab.3.0.outcome", "met")
    until(board, "m.ab.3.0.outcome")
    assert board.before("m.ab.2.0.outcome", "m.ab.3.0.outcome")


def places(job: Job, hosts: list[int]) -> list[Placement]:
    """The ranks of a job, as they are once they know of one another."""
    fields: dict[str, Any] = {"secret": SECRET, "address": "127.0.0.1"}
    size = len(hosts)
    plain = [
        Placement(rank, size, 0, 1, 0, 1, "Open MPI", job.key, f"host{host}", unplaced=True, **fields)
        for rank, host in enumerate(hosts)
    ]
    return [dataclasses.replace(each.placed(hosts), unplaced=False) for each in plain]


@pytest.mark.parametrize("hosts", [[0, 1], [0, 1, 0], [0, 0, 1, 2]])
def test_ranks_meet_by_it_again_and_again(jobs: Any, private_base: pathlib.Path, hosts: list[int]) -> None:
    job = jobs(len(hosts))
    boards = job.all_come()
    for _ in range(3):
        results = in_threads(
            [lambda p=p, b=b: connect_all([p], board=b)[0] for p, b in zip(places(job, hosts), boards)]
        )
        assert not any(isinstance(each, Exception) for each in results), results
        assert all(each.host_of_rank == hosts for each in results)
        assert results[0].placement.local_size == hosts.count(0)
        for each in results:
            each.close()
    assert list(private_base.iterdir()) == []


def test_a_rank_that_ends_before_it_has_met_the_others_is_named(jobs: Any, private_base: pathlib.Path) -> None:
    job = jobs(2)
    boards = job.all_come()
    boards[1].close()
    result = connect_all([places(job, [0, 1])[0]], board=boards[0])[0]
    assert isinstance(result, ConnectError) and "Rank 1 ended before it was connected" in str(result)
    assert result.ranks == (1,)


def test_what_is_for_one_rank_is_sent_to_that_one_alone(jobs: Any) -> None:
    job = jobs(3)
    early = job.come(1)
    early.post("only.2.fact.1", "one")
    early.post("all", "told")
    until(early, "all")
    job.come(2)
    job.come(0).post("only.2.fact.0", "null")
    assert (until(job.links[2], "only.2.fact.0"), job.links[2].get("only.2.fact.1")) == ("null", "one")
    job.links[2].post("later", "x")
    for rank in (0, 1):
        until(job.links[rank], "later")
        heard = job.links[rank].keys()
        assert not [key for key in heard if key.startswith("only.")]


def test_a_board_of_many_ranks_sends_far_less_than_each_entry_to_each(
    jobs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    size, sent = 60, []
    send = Link.send

    def counted(link: Link, message: messages.AnyMessage, descriptors: Sequence[int] = ()) -> None:
        if threading.current_thread().name == "horovod-board":  # not what ranks post
            sent.append(message)
        send(link, message, descriptors)

    monkeypatch.setattr(Link, "send", counted)
    boards = jobs(size).all_come()
    for rank, board in enumerate(boards):
        board.post(f"only.0.fact.{rank}", "f" * 300)
    for rank in range(size):
        until(boards[0], f"only.0.fact.{rank}")
    assert sum("fact" in getattr(message, "text", "") for message in sent) == size
    sent.clear()
    for rank, board in enumerate(boards):
        board.post(f"card.{rank}", "4000 127.0.0.1 host")
    for board in boards:
        for rank in range(size):
            assert until(board, f"card.{rank}") == "4000 127.0.0.1 host"
        assert board.before(board.keys()[-2], board.keys()[-1])
    orders = [board.keys() for board in boards]
    assert len({tuple(key for key in order if key.startswith("card.")) for order in orders}) == 1, "one order"
    assert len(sent) < size * size / 4


def test_who_leaves_at_the_proof_is_reported_and_ends_nothing(jobs: Any, caplog: pytest.LogCaptureFixture) -> None:
    job = jobs(2)
    there = job.come(0)
    with pytest.raises(ConnectError, match="does not hold this job's secret"):
        job.come(1, secret=bytes(32))
    assert until(there, "doubt.1") == "127.0.0.1"
    logged(caplog, "a process at 127.0.0.1 says that it is rank 1 of this job, and left after the proof")
    job.come(1).post("still", "well")
    assert until(there, "still") == "well"


def test_a_long_list_takes_few_entries(jobs: Any) -> None:
    boards = jobs(2).all_come()
    texts = [f'["host{number // 8}","{number:064x}",["10.0.{number // 8}.7/16"],"1.0"]' for number in range(1000)]
    long_list.post(boards[0], "list", texts)
    until(boards[1], "list")
    assert long_list.take(boards[1], "list") == texts
    assert len(boards[1].keys()) < 20
    boards[0].post("bad.0", "no list")
    boards[0].post("bad", "1")
    until(boards[1], "bad")
    for key in ("bad", "absent"):
        with pytest.raises(ConnectError, match=f"The list {key} on the job's board cannot be read"):
            long_list.take(boards[1], key)


def test_entries_go_together_as_far_as_a_message_holds_them() -> None:
    texts = [f"key{number}={'v' * 90}" for number in range(100)]
    made = list(messages.together([*texts, "odd=a\0b", "last="]))
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.sendall(b"".join(messages.frame(each) for each in (*made, messages.Ready())))
    board = BoardLink(Link(ours), "The keeper", time.monotonic() + PATIENCE_S)
    keys = board.keys()
    assert [f"{key}={board.get(key)}" for key in keys] == [*texts, "odd=a\0b", "last="]
    board.close()
    theirs.close()
    assert len(made) == 5 and all(len(messages.body_of(each)) <= messages.MAX_TEXT_BYTES for each in made)
    assert list(messages.together([])) == []
