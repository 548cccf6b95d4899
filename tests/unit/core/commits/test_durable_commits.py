"""Durable commits: what is written is read again or not at all, whatever happened to the file meanwhile."""

from __future__ import annotations

import errno
import itertools
import logging
import os
import pickle
import re
import stat
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Optional

import pytest
from durable_folder import commits, files, named, write

from horovod._core.commits import places as commit_places
from horovod._core.commits.places import Folder
from horovod._core.errors import InvalidArgumentError, UnsupportedError
from horovod._core.training.elastic import commit_file, durable
from horovod._core.training.elastic.durable import DurableCommits
from horovod._core.training.elastic.loop import run_fn
from horovod._core.training.elastic.snapshot import Snapshot
from horovod._core.training.elastic.state import ObjectState, State

KEY = bytes(range(32))


class Own:
    """A class of the script."""

    def __init__(self, number: int) -> None:
        self.number = number


@pytest.fixture(autouse=True)
def first_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable, "_trainings", itertools.count())


def state(**values: Any) -> ObjectState:
    return ObjectState(lambda value: value, lambda: 0, **values)


@pytest.mark.parametrize("key", [None, KEY])
def test_what_is_written_is_read(tmp_path: Path, key: Optional[bytes]) -> None:
    numpy = pytest.importorskip("numpy")
    array = numpy.arange(100_000.0)
    value = {"epoch": 3, "array": array, "columns": array.reshape(100, 1000)[:, ::2], "own": Own(7)}
    write(commits(tmp_path, key), value)
    read = commits(tmp_path, key).newest()
    assert read is not None
    attributes = read["attributes"]
    assert attributes["epoch"] == 3 and attributes["own"].number == 7
    assert (attributes["array"] == array).all() and (attributes["columns"] == value["columns"]).all()
    attributes["array"][0] = 5  # it may be written to


def test_the_newest_of_those_that_are_kept(tmp_path: Path) -> None:
    made = commits(tmp_path, keep=3)
    assert made.newest() is None
    for number in range(5):
        write(made, number)
    assert [path.name for path in files(tmp_path)] == [named(n) for n in (3, 4, 5)]
    assert commits(tmp_path).newest() == {"attributes": 4}
    assert {path.stat().st_mode & 0o777 for path in files(tmp_path)} == {0o600}
    # Another training of the same script has its own.
    assert commits(tmp_path, training=1).newest() is None
    write(commits(tmp_path, training=1), "other")
    assert commits(tmp_path).newest() == {"attributes": 4}


def spoilt(data: bytes) -> Iterator[tuple[str, bytes]]:
    for length in (0, 1, 16, 40, 60, len(data) // 2, len(data) - 1):
        yield f"cut to {length}", data[:length]
    for place in (0, 20, 30, 40, 60, len(data) // 2, len(data) - 1):
        yield f"a bit of byte {place}", data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :]
    yield "more behind it", data + b"x"
    yield "zeros", bytes(len(data))


@pytest.mark.parametrize("key", [None, KEY])
def test_no_file_that_was_cut_or_changed_is_taken(
    tmp_path: Path, key: Optional[bytes], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = commits(tmp_path, key)
    write(made, ["older"])
    write(made, ["newer", "x" * 1000])
    newest = files(tmp_path)[-1]
    data = newest.read_bytes()
    unpickled = []
    loads = pickle.loads
    monkeypatch.setattr(pickle, "loads", lambda *args, **more: unpickled.append(1) or loads(*args, **more))
    for what, changed in spoilt(data):
        newest.write_bytes(changed)
        caplog.clear()
        unpickled.clear()
        if what == "a bit of byte 20":  # which key it was
            with pytest.raises(InvalidArgumentError, match="another key"):
                made.newest()
            assert unpickled == []
            continue
        assert made.newest() == {"attributes": ["older"]}, what
        assert len(unpickled) == 1, what
        assert f"{newest.name} is passed over" in caplog.text, what


def test_a_folder_that_others_can_write_to_is_refused_before_there_is_a_commit(tmp_path: Path) -> None:
    folder = tmp_path / "commits"
    made = commits(folder)
    folder.chmod(0o775)
    with pytest.raises(InvalidArgumentError, match="can be written by others.*chmod 700"):
        made.newest()
    assert commits(folder, KEY).newest() is None


def test_a_file_system_that_cannot_sync_folders_has_its_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = os.fsync

    def only_files(fd: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        real(fd)

    monkeypatch.setattr(os, "fsync", only_files)
    made = commits(tmp_path)
    for number in range(4):
        write(made, number)
    assert len(files(tmp_path)) == 2 and caplog.text == ""


def test_only_the_right_key_reads(tmp_path: Path) -> None:
    write(commits(tmp_path, KEY), 1)
    for key in (None, KEY[::-1]):
        with pytest.raises(InvalidArgumentError, match="another key"):
            commits(tmp_path, key).newest()
    # A stranger without the key makes a file with the identity of the key.
    path = files(tmp_path)[0]
    forged = bytearray(b"".join(commit_file.written(2, None, KEY[::-1])))
    forged[:25] = path.read_bytes()[:25]
    path.write_bytes(forged)
    assert commits(tmp_path, KEY).newest() is None


def test_what_others_may_have_written_is_not_read_without_a_key(tmp_path: Path) -> None:
    folder = tmp_path / "commits"
    for key in (None, KEY):
        write(commits(folder, key), 1)
        path = files(folder)[0]
        for changed, mode in ((folder, 0o777), (folder, 0o720), (path, 0o602), (path, 0o660)):
            before = changed.stat().st_mode & 0o777
            changed.chmod(mode)
            if key is None:
                with pytest.raises(InvalidArgumentError, match="can be written by others"):
                    commits(folder).newest()
            else:
                assert commits(folder, key).newest() == {"attributes": 1}
            changed.chmod(before)
        path.unlink()


def test_a_link_is_not_followed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(commits(tmp_path / "elsewhere"), 1)
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / named(1)).symlink_to(files(tmp_path / "elsewhere")[0])
    assert commits(tmp_path / "here").newest() is None
    assert "passed over" in caplog.text


def test_what_cannot_be_written_costs_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Private:
        def __deepcopy__(self, memo: Any) -> Any:
            return self

        def __reduce__(self) -> Any:
            raise TypeError("I am nobody's")

    made = commits(tmp_path)
    write(made, Private())
    assert f"cannot be written to {tmp_path}: TypeError: I am nobody's. Training goes on." in caplog.text
    write(made, lambda: 5)  # which pickle alone could not
    newest = made.newest()
    assert newest is not None and newest["attributes"]() == 5


def test_a_full_disk_leaves_nothing_half(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int) -> None:
        os.ftruncate(fd, 1)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    made = commits(tmp_path)
    write(made, 1)
    found = re.findall(
        r"cannot be written to (.*?): OSError: \[Errno 28\] No space left on device: '(.*?)'", caplog.text
    )
    assert found == [(str(tmp_path), str(tmp_path / f".{named(1)}.{os.getpid()}.part"))], caplog.text
    caplog.clear()
    write(made, 1)  # the same again is not worth a line every minute
    assert files(tmp_path) == [] and caplog.text == ""
    monkeypatch.undo()
    write(made, 1)
    write(made, 2)
    assert caplog.text.count(f"durable commits are written to {tmp_path} again") == 1


def test_a_disk_with_room_for_those_that_are_kept_gets_newer_ones(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.fsync
    room = 3

    def full(fd: int) -> None:
        if len(files(tmp_path)) > room:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(fd)

    monkeypatch.setattr(os, "fsync", full)
    made = commits(tmp_path, keep=3)
    for number in range(6):
        write(made, number)
    assert caplog.text == "" and made.newest() == {"attributes": 5}
    # Without room beside it, the only whole one stays.
    room = 0
    write(made, 6)
    assert made.newest() == {"attributes": 5} and [path.name for path in files(tmp_path)] == [named(6)]
    assert "No space left" in caplog.text


def test_a_folder_with_the_name_of_a_commit_is_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / named(0)).mkdir()
    made = commits(tmp_path)
    for number in range(4):
        write(made, number)
    assert made.newest() == {"attributes": 3} and caplog.messages == [
        message for message in caplog.messages if "goes on from" in message
    ]
    assert [path.name for path in files(tmp_path)] == [named(n) for n in (0, 3, 4)]


def test_an_old_commit_that_cannot_be_removed_is_no_failure_of_the_new_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = commits(tmp_path, keep=1)
    write(made, 1)

    def kept(self: Folder, name: str) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted", name)

    monkeypatch.setattr(Folder, "remove", kept)
    write(made, 2)
    assert f"older durable commit in {tmp_path} cannot be removed: PermissionError" in caplog.text
    assert "cannot be written" not in caplog.text


class Gone:
    """Of a module that the next job does not find."""

    def __deepcopy__(self, memo: Any) -> Gone:
        return self

    def __reduce__(self) -> Any:
        return __import__, ("a_module_that_is_gone",)


def test_a_whole_commit_that_cannot_be_unpickled_is_named_and_older_ones_are_tried(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = commits(tmp_path, keep=3)
    write(made, Gone())
    with pytest.raises(
        InvalidArgumentError, match=f"{named(1)} in {tmp_path} is whole.*No module named 'a_module_that"
    ):
        made.newest()
    write(made, "good")
    write(made, Gone())
    caplog.clear()
    assert made.newest() == {"attributes": "good"}
    assert f"{named(3, 2)} is passed over, since unpickling it fails: ModuleNotFoundError" in caplog.text


def test_it_is_due_every_interval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    made = DurableCommits(Folder(str(tmp_path)), None, 0, 60, 2)
    assert not made.is_due()
    now[0] = 60
    assert made.is_due()
    write(made, 1)
    assert not made.is_due()
    now[0] = 121
    assert made.is_due()


def job(monkeypatch: pytest.MonkeyPatch, folder: object, **more: object) -> None:
    told = {"DIR": folder, "INTERVAL": 0, **more}
    for name, value in told.items():
        monkeypatch.setenv(f"HOROVOD_ELASTIC_COMMIT_{name}", str(value))


def written() -> None:
    """Waits until no commit is being written."""
    for thread in threading.enumerate():
        if thread.name == "horovod-durable":
            thread.join()


def test_a_training_goes_on_where_all_ranks_were_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job(monkeypatch, tmp_path / "made" / "here")

    def train(state: Any, until: int) -> int:
        begun = int(state.step)
        while state.step < until:
            state.step += 1
            state.losses.append(state.step)
            state.commit()
            written()
            if state.step == 3 and begun == 0:
                state.losses.append("not committed")
                raise KeyboardInterrupt
        return begun

    with pytest.raises(KeyboardInterrupt):
        run_fn(train, lambda: None)(state(step=0, losses=[]), 5)
    monkeypatch.setattr(durable, "_trainings", itertools.count())  # a process that has just begun
    again = state(step=0, losses=[], new=1)
    assert run_fn(train, lambda: None)(again, 5) == 3
    assert again.losses == [1, 2, 3, 4, 5] and again.new == 1


def test_other_ranks_neither_read_nor_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job(monkeypatch, tmp_path)
    write(commits(tmp_path), {"step": 9})
    other = ObjectState(lambda value: value, lambda: 1, step=0)

    def train(state: Any) -> None:
        assert state.step == 0
        state.commit()

    run_fn(train, lambda: None)(other)
    assert len(files(tmp_path)) == 1


def test_what_cannot_work_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def begin(kept: Any) -> None:
        run_fn(lambda state: pytest.fail("trained"), lambda: None)(kept)

    job(monkeypatch, "memory://commits")
    with pytest.raises(InvalidArgumentError, match="HOROVOD_ELASTIC_COMMIT_KEY_FILE"):
        begin(state())
    (tmp_path / "file").write_text("x")
    job(monkeypatch, tmp_path / "file" / "folder")
    with pytest.raises(InvalidArgumentError, match="cannot be made: Not a directory"):
        begin(state())
    job(monkeypatch, tmp_path)
    with pytest.raises(UnsupportedError, match="a State cannot be written to a file"):
        begin(State(lambda value: value, lambda: 0))
    for text, mode, words in (("short", 0o600, "16 bytes"), ("long enough a secret", 0o640, "chmod 600")):
        key = tmp_path / "key"
        key.write_text(text)
        key.chmod(mode)
        job(monkeypatch, tmp_path, KEY_FILE=key)
        with pytest.raises(InvalidArgumentError, match=words):
            begin(state())


@pytest.fixture
def own_folder(tmp_path: Path) -> Iterator[str]:
    """One where no file can be made, not even by root."""
    folder = tmp_path / "commits"
    folder.mkdir(mode=0o700)
    if os.geteuid() == 0:
        yield "/proc/self"
    else:
        folder.chmod(0o500)
        yield str(folder)
        folder.chmod(0o700)


def test_a_folder_without_the_right_to_write_is_refused_at_the_start(
    own_folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job(monkeypatch, own_folder)
    with pytest.raises(InvalidArgumentError, match=f"cannot be written to {own_folder}.*name another folder"):
        run_fn(lambda state: pytest.fail("trained"), lambda: None)(state())


def test_a_full_disk_is_none_of_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**where: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    Folder(str(tmp_path)).require_writable()


@pytest.mark.parametrize("method", ["save", "restore", "sync"])
def test_a_state_that_keeps_more_than_is_written_is_refused(tmp_path: Path, method: str) -> None:
    mixin = type("Mixin", (), {method: lambda self: getattr(ObjectState, method)(self)})
    for kind in (type("Mine", (mixin, ObjectState), {}), type("Below", (type("Mine", (mixin, ObjectState), {}),), {})):
        mine = kind(lambda value: value, lambda: 0, epoch=0)
        with pytest.raises(UnsupportedError, match=f"Mixin has a {method} of its own"):
            mine.begin_durable(commits(tmp_path))
        mine.begin_durable(None)
        mine.commit()
    type("Plain", (ObjectState,), {"reset": lambda self: None})(lambda value: value, lambda: 0, epoch=0).begin_durable(
        commits(tmp_path)
    )


def test_a_commit_of_another_script_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job(monkeypatch, tmp_path)
    made = commits(tmp_path)
    made.write({"variables": Snapshot([1])}, 0)
    made.close()
    with pytest.raises(InvalidArgumentError, match="does not fit the state of this script"):
        run_fn(lambda state: pytest.fail("trained"), lambda: None)(state(step=0))


def test_behind_a_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed.")
    caplog.set_level(logging.WARNING)
    url = f"memory://{tmp_path.name}/commits"
    made = DurableCommits(commit_places.place(url), KEY, 0, 0, 2)
    assert made.newest() is None
    for number in range(4):
        write(made, number)
    again = commit_places.place(url)
    assert sorted(again.names()) == [named(n) for n in (3, 4)]
    assert made.newest() == {"attributes": 3}
    again.write(named(9), [b"half"])
    assert made.newest() == {"attributes": 3}
    assert f"{named(9)} is passed over" in caplog.text
    with pytest.raises(InvalidArgumentError, match="is not known"):
        DurableCommits(again, None, 0, 0, 2).newest()
    again.remove("never there")

    def no_folder(*words: Any, **more: Any) -> Any:  # as where they are the beginnings of names
        raise FileNotFoundError

    monkeypatch.setattr(type(fsspec.filesystem("memory")), "ls", no_folder)
    assert again.names() == []


def test_a_url_without_fsspec_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(UnsupportedError, match="pip install fsspec"):
        commit_places.place("s3://bucket/folder")
