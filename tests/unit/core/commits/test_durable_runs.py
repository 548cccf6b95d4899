"""Which durable commit is the newest, and what is left of those that were never finished: several writers and runs."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from durable_folder import commits, files, named, write

from horovod._core.training.elastic.snapshot import Snapshot
from horovod._core.training.elastic.state import ObjectState


def test_a_file_that_was_not_finished_is_reported_and_removed_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = commits(tmp_path)
    write(made, 1)
    (tmp_path / f".{named(2)}.4711.part").write_bytes(files(tmp_path)[0].read_bytes()[:100])
    assert made.newest() == {"attributes": 1}
    assert f"{named(2)}.4711.part is passed over: it was never finished" in caplog.text
    write(made, 2)
    assert [path.name for path in files(tmp_path)] == [named(1), named(2, 2)]


def test_runs_that_are_killed_in_their_first_write_leave_one_part_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(commits(tmp_path), 1)
    for run in range(2, 5):
        (tmp_path / f".{named(1, run)}.4711.part").write_bytes(b"half")
    again, before = commits(tmp_path), []
    again.newest()
    real = os.open

    def opened(path: Any, *args: Any, **kwargs: Any) -> int:
        if str(path).endswith(".part"):
            before.extend(each.name for each in files(tmp_path))
        return real(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", opened)
    write(again, 2)
    assert before == [named(1)]


def test_a_part_of_a_writer_with_the_same_pid_is_in_nobodys_way(tmp_path: Path) -> None:
    made = commits(tmp_path)
    write(made, 1)
    (tmp_path / f".{named(1, 2)}.{os.getpid()}.part").write_bytes(b"half")  # the next run was killed in its first write
    again = commits(tmp_path)
    again.newest()
    write(again, 2)
    assert again.newest() == {"attributes": 2} and [path.name for path in files(tmp_path)] == [named(1), named(1, 3)]


class Slow:
    """A value that is written when the test says so."""

    def __init__(self, now: threading.Event) -> None:
        self._now = now

    def __deepcopy__(self, memo: Any) -> Slow:
        return self

    def __reduce__(self) -> Any:
        assert self._now.wait(30)
        return str, ("of the dismissed rank",)


@pytest.mark.parametrize("keep", [1, 2, 3])
@pytest.mark.parametrize("done", [0, 1, 2])
def test_what_a_dismissed_rank_0_writes_last_is_older_than_what_the_new_one_writes(
    tmp_path: Path, keep: int, done: int
) -> None:
    """`done`: so many commits of the new rank 0 are whole before that of the old one."""
    dismissed, new = commits(tmp_path, keep=keep), commits(tmp_path, keep=keep)
    dismissed.newest()
    new.run = dismissed.run  # as `share_run` has it
    write(dismissed, "first")
    now = threading.Event()
    dismissed.write({"attributes": Snapshot(Slow(now))}, 0)
    for number in range(done):
        write(new, number, epoch=1)
    now.set()
    dismissed.close()
    for number in range(done, 3):
        write(new, number, epoch=1)
        assert commits(tmp_path).newest() == {"attributes": number}
    assert commits(tmp_path).newest() == {"attributes": 2}
    assert not [path for path in files(tmp_path) if path.name.endswith(".part")]


def test_two_that_write_at_once_leave_one_anothers_parts_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    dismissed, new = commits(tmp_path), commits(tmp_path)
    dismissed.run = new.run = 1
    early, late = threading.Event(), threading.Event()
    new.write({"attributes": Snapshot(["the new one's", Slow(late)])}, 1)
    dismissed.write({"attributes": Snapshot(Slow(early))}, 0)
    early.set()
    dismissed.close()
    late.set()
    new.close()
    assert commits(tmp_path).newest() == {"attributes": ["the new one's", "of the dismissed rank"]}
    assert "cannot be written" not in caplog.text


def test_a_commit_that_is_overtaken_while_it_is_written_is_no_mistake(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    dismissed, new = commits(tmp_path), commits(tmp_path)
    dismissed.run = new.run = 1
    real = os.rename

    def rename(aside: str, name: str) -> None:
        if "-000000-" in name:  # between its last byte and its name
            write(new, "new", epoch=1)
        real(aside, name)

    monkeypatch.setattr(os, "rename", rename)
    write(dismissed, "old")
    assert [path.name for path in files(tmp_path)] == [named(1, epoch=1)]
    assert "cannot be written" not in caplog.text and "another rank 0 wrote a newer one" in caplog.text


def test_a_rank_0_of_the_run_before_is_older_whatever_its_epoch(tmp_path: Path) -> None:
    before = commits(tmp_path)
    before.newest()
    write(before, "read by the next run", epoch=7)
    run = commits(tmp_path)
    assert run.newest() == {"attributes": "read by the next run"}
    write(run, "of this run")
    write(before, "of a rank that was thought dead", epoch=8)
    assert commits(tmp_path).newest() == {"attributes": "of this run"}


def test_all_ranks_count_the_run_as_rank_0_does(tmp_path: Path) -> None:
    write(commits(tmp_path), {"step": 3})
    told: list[Any] = []
    first = ObjectState(lambda value: told.append(value) or value, lambda: 0, step=0)
    second = ObjectState(lambda value: told[-1], lambda: 1, step=0)
    folders = commits(tmp_path), commits(tmp_path)
    for each, folder in zip((first, second), folders):
        each.begin_durable(folder)
        each.take_durable()
        each.share_run()
    assert [folder.run for folder in folders] == [2, 2]


@pytest.mark.parametrize("writing", [0, 1])
def test_ranks_of_which_some_have_no_folder_share_what_there_is(
    tmp_path: Path, writing: int, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[tuple[int, Any]] = []

    def of_rank(rank: int) -> Any:
        def broadcast(value: Any) -> Any:
            calls.append((rank, value))
            return calls[0][1]

        return broadcast

    for rank in range(2):
        each = ObjectState(of_rank(rank), lambda rank=rank: rank, step=0)
        each.begin_durable(commits(tmp_path) if rank == writing else None)
        each.take_durable()
        each.share_run()
    # Else the ranks would wait for one another in different operations.
    assert [rank for rank, _ in calls] == [0, 1]
    assert calls[0][1] == (1 if writing == 0 else None)
    assert ("on rank 0 and not on rank 1" if writing == 0 else "on rank 1 and not on rank 0") in caplog.text
