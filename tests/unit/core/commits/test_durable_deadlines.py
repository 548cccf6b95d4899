"""A place for durable commits that does not answer, as one whose server is away: an error, no hang."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from horovod._core.commits import bounded as bounds
from horovod._core.commits import choice
from horovod._core.commits.bounded import Bounded, NoAnswerError, bounded
from horovod._core.commits.owner import Ownership
from horovod._core.commits.places import Folder
from horovod._core.commits.signs import this_owner
from horovod._core.errors import InvalidArgumentError
from horovod._core.settings import values
from horovod._core.training.elastic.durable import DurableCommits

DEADLINE_S = 0.3
SMALL = ("names", "require_own", "require_writable", "peek", "mark", "remove")


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[float]:
    """No operation may take longer than this test waits."""
    monkeypatch.setattr(bounds, "DEADLINE_S", DEADLINE_S)
    begun_s = time.monotonic()
    yield DEADLINE_S
    assert time.monotonic() - begun_s < 20


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Who waits for it hangs in every operation of a folder that is named by `hang`."""
    back = threading.Event()
    yield back
    back.set()


def hang(monkeypatch: pytest.MonkeyPatch, back: threading.Event, *names: str) -> None:
    for name in names:
        real = getattr(Folder, name)

        def waiting(*args: Any, real: Any = real) -> Any:
            assert back.wait(60)
            return real(*args)

        monkeypatch.setattr(Folder, name, waiting)


def waiting_threads() -> int:
    return sum(thread.name == "horovod-place" for thread in threading.enumerate())


@pytest.mark.parametrize("name", SMALL)
def test_each_operation_ends(name: str, tmp_path: Path, away: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    where = bounded(str(tmp_path))
    hang(monkeypatch, away, name)
    more = {"peek": ("a", 1), "mark": ("a", b"", True), "remove": ("a",)}.get(name, ())
    for _ in range(3):
        with pytest.raises(NoAnswerError, match="has taken longer than"):
            getattr(where, name)(*more)
        assert waiting_threads() == 1  # not one more for every try
    away.set()
    where.mark("b", b"text", True)
    assert where.peek("b", 2) == b"te" and where.names()


def test_errors_are_those_of_the_place(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        bounded(str(tmp_path)).peek("no such", 1)
    with pytest.raises(InvalidArgumentError, match="is not a folder and cannot be made"):
        bounded(os.devnull)


def test_a_folder_that_cannot_even_be_made(away: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "makedirs", lambda *args, **more: away.wait(60))
    with pytest.raises(InvalidArgumentError, match="HOROVOD_ELASTIC_COMMIT_DIR: /far does not answer: opening it has"):
        bounded("/far")


@pytest.mark.parametrize("name", ["names", "mark", "require_writable"])
def test_a_job_that_begins_there_is_reported(
    name: str, tmp_path: Path, away: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    hang(monkeypatch, away, name)
    commits = DurableCommits(bounded(str(tmp_path)), None, 0, 0, 2)
    with pytest.raises(InvalidArgumentError, match=f"{tmp_path} does not answer: .*or name another folder"):
        commits.begin()


@pytest.mark.parametrize("name", ["names", "require_own", "require_writable"])
def test_the_launcher_hears_of_it(
    name: str, tmp_path: Path, away: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    hang(monkeypatch, away, name)
    chosen = values.from_environ({"HOROVOD_ELASTIC_COMMIT_DIR": str(tmp_path)})
    with pytest.raises(InvalidArgumentError, match=f"{tmp_path} does not answer"):
        choice.refuse_impossible(chosen, here=True, this_python=True)


def test_a_sign_whose_file_hangs_holds_nobody_up(tmp_path: Path) -> None:
    """A pipe that nobody reads hangs who opens it, in the kernel."""
    own = Ownership(bounded(str(tmp_path)), this_owner({}, False))
    own.take()
    sign = next(tmp_path.glob("owner-*"))
    sign.unlink()
    os.mkfifo(sign)
    try:
        assert own.refresh()  # a server may be away for a while
        own.give_up()
    finally:
        os.close(os.open(sign, os.O_RDONLY | os.O_NONBLOCK))


def test_a_long_read_is_reported_and_not_given_up(
    tmp_path: Path, away: threading.Event, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    (tmp_path / "a").write_bytes(b"x" * 1000)
    hang(monkeypatch, away, "read")
    timer = threading.Timer(2.5 * DEADLINE_S, away.set)
    timer.start()
    assert Bounded(Folder(str(tmp_path))).read("a", False) == b"x" * 1000
    assert "reading the durable commit a from" in caplog.text and "takes longer than 0.6 s" in caplog.text
