"""Files of a store that take the place of one another: what a writer leaves that is killed at any moment."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")
from fsspec.implementations.local import LocalFileSystem  # noqa: E402

from horovod.spark.common import whole_files  # noqa: E402


class Killed(BaseException):
    """What SIGKILL does: nothing is tidied up afterwards."""


class Moving(LocalFileSystem):  # type: ignore[misc]
    """A file system whose writers are killed before an operation."""

    cachable = False

    def __init__(self, last: int = 1000) -> None:
        super().__init__()
        self.last = last  # how many operations there are

    def _count(self) -> None:
        self.last -= 1
        if self.last < 0:
            raise Killed

    def mv(self, path1: str, path2: str, **kwargs: Any) -> None:
        self._count()
        assert "hdfs" not in self.protocol or not os.path.exists(path2), f"{path2} is there: HDFS does not move onto it"
        super().mv(path1, path2, **kwargs)

    def rm_file(self, path: str) -> None:
        self._count()
        super().rm_file(path)


class LikeHdfs(Moving):
    """The same, which refuses to move a file onto another."""

    protocol = ("hdfs",)


@pytest.mark.parametrize("kind", [Moving, LikeHdfs])
def test_a_file_survives_a_writer_that_is_killed_at_any_moment(kind: type[Moving], tmp_path: Path) -> None:
    target = tmp_path / "checkpoint"
    for last in range(4):
        target.write_bytes(b"old")
        fs = kind(last)
        try:
            whole_files.write(fs, str(target), b"new")
        except Killed:
            assert fs.last < 0
        seen = [each.read_bytes() for each in tmp_path.iterdir() if not each.name.endswith(".part")]
        assert b"old" in seen or b"new" in seen
        whole_files.settle(kind(), str(target))
        assert target.read_bytes() == (seen[0] if len(seen) == 1 else b"new")
        assert not list(tmp_path.glob("*.old"))
        for part in tmp_path.glob("*.part"):
            part.unlink()


def test_a_move_that_fails_brings_the_old_file_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "checkpoint"
    target.write_bytes(b"old")
    moved = LikeHdfs.mv

    def fails(self: Any, path1: str, path2: str, **kwargs: Any) -> None:
        if path1.endswith(".part"):
            raise OSError("no room")
        moved(self, path1, path2, **kwargs)

    monkeypatch.setattr(LikeHdfs, "mv", fails)
    with pytest.raises(OSError, match="no room"):
        whole_files.write(LikeHdfs(), str(target), b"new")
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == {"checkpoint": b"old"}


def test_a_move_that_is_refused_without_an_error_brings_it_back_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "checkpoint"
    target.write_bytes(b"old")
    moved = LikeHdfs.mv
    monkeypatch.setattr(LikeHdfs, "mv", lambda *given: None if given[1].endswith(".part") else moved(*given))
    with pytest.raises(OSError, match="is not there after"):
        whole_files.write(LikeHdfs(), str(target), b"new")
    assert target.read_bytes() == b"old"


def test_files_whose_age_is_unknown_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def modified(*_: Any) -> Any:
        raise NotImplementedError

    monkeypatch.setattr(Moving, "modified", modified)
    part = tmp_path / "checkpoint.0123456789ab.part"
    part.write_bytes(b"")
    whole_files.settle(Moving(), str(tmp_path / "checkpoint"))
    assert part.exists()


def test_only_what_nobody_writes_any_more_is_removed(tmp_path: Path) -> None:
    stale, living = tmp_path / "checkpoint.0123456789ab.part", tmp_path / "checkpoint.cdef01234567.part"
    others = tmp_path / "checkpoint.best.part", tmp_path / "weights.0123456789ab.part"
    for each in (stale, living, *others):
        each.write_bytes(b"")
    long_ago = time.time() - 7200
    for each in (stale, *others):
        os.utime(each, (long_ago, long_ago))
    whole_files.settle(Moving(), str(tmp_path / "checkpoint"))
    assert sorted(tmp_path.iterdir()) == sorted((living, *others))
    whole_files.settle(Moving(), str(tmp_path / "nobody" / "was" / "here"))


def test_the_newest_of_those_aside_comes_back(tmp_path: Path) -> None:
    for number, name in enumerate(("a" * 12, "c" * 12, "b" * 12)):
        each = tmp_path / f"checkpoint.{name}.old"
        each.write_text(name[0])
        os.utime(each, (number, number))
    whole_files.settle(LikeHdfs(), str(tmp_path / "checkpoint"))
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {"checkpoint": "b"}


def test_an_object_appears_when_it_is_complete() -> None:
    class Objects:
        protocol = ("s3", "s3a")

        def __init__(self) -> None:
            self.made: list[Any] = []

        def pipe_file(self, *given: Any) -> None:
            self.made.append(given)

    fs = Objects()
    whole_files.write(fs, "bucket/checkpoint", b"new")
    whole_files.settle(fs, "bucket/checkpoint")
    assert fs.made == [("bucket/checkpoint", b"new")]
