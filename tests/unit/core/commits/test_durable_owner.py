"""Whose the durable commits are: one job's at a time, as long as it lives."""

from __future__ import annotations

import dataclasses
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Optional

import pytest
from durable_folder import commits, files, write

from horovod._core.commits import owner as owners
from horovod._core.commits import places
from horovod._core.commits.owner import Ownership
from horovod._core.commits.places import Folder, Place, place
from horovod._core.commits.signs import Here, Owner, this_owner, verdict
from horovod._core.errors import InvalidArgumentError
from horovod._core.training.elastic.durable import DurableCommits
from horovod._net import identity

JOBS = "0123456789abcdef"


def of_job(job: str, **more: Any) -> Owner:
    return dataclasses.replace(this_owner({}, False), job=job * 16, **more)


@pytest.fixture(autouse=True)
def given_up() -> Iterator[None]:
    """No thread goes on refreshing when the folder is gone."""
    made: list[Ownership] = []
    real = Ownership.__init__

    def init(self: Ownership, *args: Any) -> None:
        made.append(self)
        real(self, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ownership, "__init__", init)
        yield
    for each in made:
        each.give_up()


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("BEAT_S", 0.02), ("SILENCE_S", 0.3), ("_LOOK_S", 0.01)):
        monkeypatch.setattr(owners, name, value)


def signs(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("owner-"))


def ended_process() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        return process.pid


HERE = Here("this boot", 7)
SIGN = Owner("j", "a", "this boot", 7, 100, 5, "today", "")


@pytest.mark.parametrize(
    ("changes", "age_s", "running", "expected"),
    [
        ({}, 0, [(100, 5)], "living"),
        ({}, 10_000, [(100, 5)], "living"),  # stopped, perhaps, but there
        ({}, 0, [], "dead"),
        ({}, 0, [(100, 6)], "dead"),  # another process got the pid
        ({"boot": "another"}, 10, [(100, 5)], "unknown"),
        ({"pids": 8}, 10, [(100, 5)], "unknown"),  # another container: its pid says nothing here
        ({"boot": "another"}, 10_000, [], "dead"),
        ({"boot": "another"}, -10_000, [], "unknown"),  # the clocks differ
        ({"boot": "", "pids": 0}, 10, [(100, 5)], "unknown"),
    ],
)
def test_who_lives(changes: dict[str, Any], age_s: float, running: list[tuple[int, int]], expected: str) -> None:
    sign = dataclasses.replace(SIGN, **changes)
    assert verdict(sign, 50_000 - age_s, HERE, 50_000, lambda *process: process in running) == expected
    if "boot" in changes:
        assert verdict(sign, 50_000 - age_s, Here(changes["boot"], 0), 50_000, lambda *process: True) != "living"


def test_nobody_is_dead_who_cannot_be_asked_about() -> None:
    assert verdict(SIGN, 0.0, HERE, 50_000, lambda *process: None) == "unknown"


@pytest.mark.parametrize(
    "refusal", [PermissionError(13, "Permission denied"), PermissionError(1, "no"), OSError(24, "")]
)
def test_what_the_kernel_tells_of_a_process(refusal: OSError, monkeypatch: pytest.MonkeyPatch) -> None:
    place, gone = identity.parent_and_start(os.getpid()), ended_process()
    assert place is not None
    assert identity.is_running(os.getpid(), place[1]) is True
    assert identity.is_running(os.getpid(), place[1] + 1) is False
    assert identity.is_running(os.getpid(), 0) is None  # who has put up the sign did not know it
    assert identity.is_running(gone, 5) is False

    def hidden(path: str, *args: Any) -> Any:
        raise refusal

    monkeypatch.setattr(identity, "open", hidden, raising=False)
    assert identity.is_running(os.getpid(), place[1]) is None  # the pid may be another process's by now
    assert identity.is_running(gone, 5) is False

    def forbidden(pid: int, number: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "kill", forbidden)
    assert identity.is_running(gone, 5) is None


def test_a_second_job_is_refused_and_hears_who_has_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = commits(tmp_path)
    assert first.begin() is None
    write(first, "of the first")
    first.hold(True)
    monkeypatch.setenv("HOROVOD_JOB_ID", "another")
    second = DurableCommits(Folder(str(tmp_path)), None, 0, 0, 2, elastic=True)
    here = this_owner({}, False)
    with pytest.raises(
        InvalidArgumentError, match=f"process {os.getpid()} on {here.host}, which began at {here.began}"
    ):
        second.begin()
    first.close()
    assert second.begin() == {"attributes": "of the first"}
    second.close()
    assert signs(tmp_path) == []


def test_the_launcher_refuses_it_too(tmp_path: Path) -> None:
    first = Ownership(Folder(str(tmp_path)), of_job("1"))
    first.take()
    with pytest.raises(InvalidArgumentError, match="End that job, or name another folder"):
        owners.refuse_living(Folder(str(tmp_path)))
    first.give_up()
    owners.refuse_living(Folder(str(tmp_path)))


def test_what_a_dead_one_leaves_is_taken_over_with_a_message(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    dead = Ownership(Folder(str(tmp_path)), dataclasses.replace(this_owner(os.environ, False), job="1" * 16))
    dead.owner = dataclasses.replace(dead.owner, pid=ended_process())
    dead.take()
    dead.pause()
    second = commits(tmp_path)
    begun_s = time.monotonic()
    second.begin()
    assert time.monotonic() - begun_s < 5
    assert f"belonged to a job that has ended: process {dead.owner.pid} on " in caplog.text
    assert "Slurm job 4711. This job takes them over" in caplog.text
    assert signs(tmp_path) == [f"owner-{second._own.owner.job}.json"]


@pytest.mark.usefixtures("fast")
def test_one_of_another_host_is_watched(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    far = Ownership(Folder(str(tmp_path)), of_job("1", boot="another", host="far"))
    far.take()
    near = Ownership(Folder(str(tmp_path)), of_job("2"))
    with pytest.raises(InvalidArgumentError, match="on far"):
        near.take()
    assert "Waiting up to 0.3 s to see if it still runs" in caplog.text
    far.pause()  # its power is off
    near.take()
    assert "on far, which began at" in caplog.text and "takes them over" in caplog.text
    assert not near.lost and signs(tmp_path) == [f"owner-{'2' * 16}.json"]


@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize("text", ["", "{", "[]", '{"job": 1}', "[" * 4000, '{"job": "x", "seen_s": 1}'])
def test_rubbish_is_watched_and_removed(tmp_path: Path, text: str) -> None:
    (tmp_path / f"owner-{'3' * 16}.json").write_text(text)
    Ownership(Folder(str(tmp_path)), of_job("2")).take()
    assert signs(tmp_path) == [f"owner-{'2' * 16}.json"]


@pytest.mark.usefixtures("fast")
def test_a_sign_that_cannot_be_read_is_no_dead_jobs(tmp_path: Path) -> None:
    name = f"owner-{'3' * 16}.json"
    (tmp_path / name).symlink_to("elsewhere")  # no link is followed
    with pytest.raises(InvalidArgumentError, match=f"the file {name} of another job, which cannot be read: Too"):
        Ownership(Folder(str(tmp_path)), of_job("2")).take()
    assert signs(tmp_path) == [name]


@pytest.mark.usefixtures("fast")
def test_a_sign_that_cannot_be_read_for_a_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that comes back has told nothing: the sign is compared from then on."""
    far = Ownership(Folder(str(tmp_path)), of_job("1", boot="another", host="far"))
    far.take()
    far.pause()
    real, looks = Folder.peek, []

    def away(self: Folder, name: str, most: int) -> bytes:
        looks.append(name)
        if len(looks) < 4:
            raise OSError(116, "Stale file handle")
        return real(self, name, most)

    monkeypatch.setattr(Folder, "peek", away)
    Ownership(Folder(str(tmp_path)), of_job("2")).take()
    assert len(looks) > 4 and signs(tmp_path) == [f"owner-{'2' * 16}.json"]


def test_the_sign_of_a_dead_one_that_may_not_be_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dead = Ownership(Folder(str(tmp_path)), of_job("1", pid=ended_process()))
    dead.take()
    dead.pause()

    def forbidden(self: Folder, name: str) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Folder, "remove", forbidden)
    with pytest.raises(InvalidArgumentError, match="of a job that has ended, which cannot be removed: Operation not"):
        Ownership(Folder(str(tmp_path)), of_job("2")).take()


@pytest.mark.usefixtures("fast")
def test_who_was_taken_for_dead_writes_no_more(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    asleep = commits(tmp_path)
    asleep.begin()
    asleep.hold(True)
    assert asleep.is_due()
    (tmp_path / signs(tmp_path)[0]).unlink()
    Ownership(Folder(str(tmp_path)), of_job("2")).take()
    write(asleep, "of the one that was asleep")
    assert files(tmp_path) == [] and not asleep.is_due()
    assert caplog.text.count("another job has taken over the durable commits") == 1
    asleep.close()
    assert signs(tmp_path) == [f"owner-{'2' * 16}.json"]


def test_a_new_rank_0_goes_on_with_its_jobs_sign(tmp_path: Path) -> None:
    old = Ownership(Folder(str(tmp_path)), of_job("1"))
    old.take()
    parent = identity.parent_and_start(os.getppid())
    assert parent is not None
    new = Ownership(Folder(str(tmp_path)), of_job("1", pid=os.getppid(), start=parent[1]))
    new.take()
    old.give_up()  # dismissed
    assert signs(tmp_path) == [f"owner-{'1' * 16}.json"]
    assert new.refresh()
    with pytest.raises(InvalidArgumentError, match=f"process {os.getppid()}"):
        Ownership(Folder(str(tmp_path)), of_job("2")).take()
    new.give_up()
    assert signs(tmp_path) == []


def test_a_new_rank_0_that_comes_too_late_warns_and_trains_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    Ownership(Folder(str(tmp_path)), of_job("2")).take()
    late = commits(tmp_path)
    late.hold(True)
    assert "this job writes no further durable commits: HOROVOD_ELASTIC_COMMIT_DIR: the commits in" in caplog.text
    assert not late.is_due()


@pytest.mark.parametrize("kind", ["folder", "url"])
def test_of_those_that_come_at_once_one_gets_it(tmp_path: Path, kind: str) -> None:
    where: Place
    if kind == "url":
        pytest.importorskip("fsspec", reason="fsspec is not installed.")
    for turn in range(15):
        where = place(f"memory://{tmp_path.name}/{turn}" if kind == "url" else str(tmp_path / str(turn)))
        several = [Ownership(where, of_job(job)) for job in JOBS[:4]]
        got: list[Optional[bool]] = [None] * len(several)
        barrier = threading.Barrier(len(several))

        def take(index: int, several: Any = several, got: Any = got, barrier: Any = barrier) -> None:
            barrier.wait()
            try:
                several[index].take()
                got[index] = True
            except InvalidArgumentError:
                got[index] = False

        threads = [threading.Thread(target=take, args=(index,)) for index in range(len(several))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(map(bool, got)) == [False] * 3 + [True] and None not in got, got
        for each in several:
            each.give_up()


def test_a_disk_without_room_for_the_sign_is_no_reason_not_to_train(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any, **more: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Folder, "mark", full)
    Ownership(Folder(str(tmp_path)), of_job("1")).take()
    assert "cannot be marked as in use by this job: [Errno 28]" in caplog.text


def test_a_full_disk_keeps_no_empty_sign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(places.os, "write", full)
        Ownership(Folder(str(tmp_path)), of_job("1")).take()
    assert signs(tmp_path) == []


def test_a_folder_that_cannot_be_listed_again_keeps_no_sign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([[], [], OSError(5, "Input/output error")])

    def names(self: Folder) -> list[str]:
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "names", names)
        with pytest.raises(OSError, match="Input/output"):
            Ownership(Folder(str(tmp_path)), of_job("1")).take()
    assert signs(tmp_path) == []


def test_whose_commit_it_is_that_a_job_goes_on_from(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    earlier = commits(tmp_path)
    earlier._own.owner = of_job("1", pid=4711, host="far\n")
    write(earlier, 1)
    again = commits(tmp_path)
    assert again.begin() == {"attributes": 1}
    assert "which an earlier job wrote: process 4711 on far?, which began at" in caplog.text
    caplog.clear()
    write(again, 2)
    assert again.newest() == {"attributes": 2} and caplog.text == ""
    again.close()
