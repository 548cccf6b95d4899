"""The job's private directory: where it is made, who may use it, and which ones a later launcher sweeps."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from horovod.runner.processes import keeper, runtime_directory

NOBODY = 65534
HOME = f"horovodrun-{os.getuid()}"


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The first place that is tried."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path


def not_below(place: str, real: Callable[..., Any]) -> Callable[..., Any]:
    """A method of Path that finds no space there."""

    def method(path: Path, *arguments: Any, **more: Any) -> Any:
        if Path(place) in path.parents:
            raise OSError(28, "No space left on device")
        return real(path, *arguments, **more)

    return method


@pytest.fixture
def small(base: Path) -> Iterator[Path]:
    """The same with room for 16 KiB."""
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "none", str(base)], check=False)
    if mounted.returncode:
        pytest.skip("Not here: this machine lets nobody mount a file system.")
    yield base
    subprocess.run(["umount", str(base)], check=True)


def a_directory(home: Path, name: str, kernel: str | None) -> Path:
    path = home / f"launch-{name}"
    (path / "0123").mkdir(parents=True)
    (path / "0123/r0").touch()
    if kernel is not None:
        (path / "kernel").write_text(kernel)
    return path


def test_only_directories_of_dead_launchers_are_swept(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = runtime_directory.create()
    home = mine.path.parent
    assert mine.path.stat().st_mode & 0o777 == home.stat().st_mode & 0o777 == 0o700
    kernel = (mine.path / "kernel").read_text()
    assert kernel
    dead = a_directory(home, "dead", kernel)
    alive = a_directory(home, "living", kernel)
    lock_fd = os.open(alive, os.O_RDONLY)
    fcntl.flock(lock_fd, fcntl.LOCK_SH)
    a_directory(home, "of-another-kernel", "other")
    a_directory(home, "of-an-unknown-kernel", "")
    a_directory(home, "being-made", None)
    of_another_version = a_directory(home, "of-another-version", None)
    broken = home / "launch-that-was-never-finished"
    broken.mkdir()
    for old in (of_another_version, broken):
        os.utime(old, (0, 0))
    with monkeypatch.context() as without_proc:
        without_proc.setattr(Path, "read_text", not_below("/proc", Path.read_text))
        assert runtime_directory.sweep(home) == [broken]
    assert runtime_directory.sweep(home) == [dead]
    os.close(lock_fd)
    assert runtime_directory.sweep(home) == [alive]
    assert (of_another_version / "0123/r0").exists()
    assert mine.path.exists()
    mine.remove()
    assert not mine.path.exists()


def test_whoever_inherits_the_lock_keeps_the_directory(base: Path) -> None:
    mine = runtime_directory.create()
    heir = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=[mine.lock_fd])
    os.close(mine.lock_fd)
    assert runtime_directory.sweep(mine.path.parent) == []
    heir.communicate()
    assert runtime_directory.sweep(mine.path.parent) == [mine.path]


def test_a_home_that_others_can_enter_is_not_used(base: Path, caplog: pytest.LogCaptureFixture) -> None:
    (base / HOME).mkdir(mode=0o755)
    mine = runtime_directory.create()
    assert mine.path.parent != base / HOME
    assert mine.path.parent.stat().st_mode & 0o777 == 0o700
    assert f"{base / HOME} has mode 0755, so that other users can enter it" in caplog.text
    mine.remove()
    assert os.listdir(base) == [HOME]


@pytest.mark.skipif(os.getuid() != 0, reason="Not here: only root can give a file away.")
def test_a_squatted_name_is_reported_and_another_one_used(base: Path, caplog: pytest.LogCaptureFixture) -> None:
    (base / HOME).mkdir(mode=0o700)
    os.chown(base / HOME, NOBODY, NOBODY)
    mine = runtime_directory.create()
    assert mine.path.parent.parent == base
    assert "belongs to user nobody (uid 65534)" in caplog.text
    # What dies there is found, too.
    abandoned = mine.path
    os.close(mine.lock_fd)
    runtime_directory.create().remove()
    assert not abandoned.exists()


def test_a_place_without_room_is_passed_over_and_left_clean(small: Path) -> None:
    (small / "fill").write_bytes(bytes(8192))
    mine = runtime_directory.create(ranks=1)
    assert small not in mine.path.parents
    mine.remove()
    assert os.listdir(small) == ["fill"]


def test_without_a_temporary_directory_another_place_is_used(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> str:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", none)
    mine = runtime_directory.create()
    assert base in mine.path.parents
    mine.remove()


def test_without_any_place_each_reason_is_reported(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = base / "file"
    file.touch()
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/proc")
    monkeypatch.setattr(Path, "mkdir", not_below("/dev/shm", Path.mkdir))
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(file))
    with pytest.raises(OSError, match=rf"/proc: .*; {file}: Not a directory.*Set TMPDIR"):
        runtime_directory.create()


def test_without_any_place_nor_a_temporary_directory_each_reason_is_reported(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none() -> str:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", none)
    monkeypatch.setattr(Path, "write_text", not_below("/", Path.write_text))
    with pytest.raises(OSError, match=rf"{base}: No space left on device; /dev/shm: No space .*Set TMPDIR"):
        runtime_directory.create()


def test_a_home_that_goes_while_it_is_looked_at_is_made_again(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, looks = os.lstat, []

    def gone_at_first(path: Path) -> os.stat_result:
        if path == base / HOME:
            looks.append(path)
            if len(looks) == 1:
                path.rmdir()
        return real(path)

    with monkeypatch.context() as another:
        another.setattr(os, "lstat", gone_at_first)
        mine = runtime_directory.create()
    assert len(looks) > 1
    assert mine.path.parent == base / HOME
    mine.remove()


def test_nothing_is_left_when_the_directory_cannot_be_finished(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = Path(tempfile.mkdtemp())
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(elsewhere))
    monkeypatch.setattr(Path, "mkdir", not_below("/dev/shm", Path.mkdir))
    monkeypatch.setattr(Path, "write_text", not_below(str(base), Path.write_text))
    mine = runtime_directory.create()
    assert elsewhere in mine.path.parents
    assert os.listdir(base) == []
    mine.remove()
    shutil.rmtree(elsewhere)


def test_a_relative_place_is_passed_over(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(base)
    monkeypatch.setenv("XDG_RUNTIME_DIR", "run")
    (base / "run").mkdir(mode=0o700)
    mine = runtime_directory.create()
    assert mine.path.is_absolute() and base not in mine.path.parents
    mine.remove()


def test_two_may_remove_a_directory_at_once(base: Path) -> None:
    for _ in range(20):
        mine = runtime_directory.create()
        for number in range(30):
            (mine.path / str(number)).mkdir()
            (mine.path / str(number) / "file").touch()
        other = threading.Thread(target=keeper.remove, args=[str(mine.path)])
        other.start()
        mine.remove()
        other.join()
        assert os.listdir(base) == []


def test_a_directory_that_stays_is_reported(
    base: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    mine = runtime_directory.create()
    monkeypatch.setattr(keeper, "remove", lambda directory: None)
    mine.remove()
    assert caplog.messages == [f"{mine.path} cannot be removed; remove it by hand."]
    assert mine.path.exists()
