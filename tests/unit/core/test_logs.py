"""The ranks' Python logger: as HOROVOD_LOG_LEVEL and HOROVOD_LOG_HIDE_TIME say, and never in the program's way."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterator

import pytest

from horovod._core.life import logs
from horovod._core.settings import PYTHON_LEVELS, Settings, from_environ

LOGGER = logging.getLogger("horovod")
TIMED = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2},[0-9]{3} \[rank 3\] ")


@pytest.fixture(autouse=True)
def stderr(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """What comes to stderr, in a process whose program has configured nothing."""
    root, level, handlers = logging.getLogger(), LOGGER.level, LOGGER.handlers[:]
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(logs, "_set_level", logging.NOTSET)
    LOGGER.setLevel(logging.NOTSET)
    text = io.StringIO()
    monkeypatch.setattr("sys.stderr", text)
    yield text
    LOGGER.setLevel(level)
    LOGGER.handlers[:] = handlers


def say_all() -> None:
    for name, level in PYTHON_LEVELS.items():
        logging.getLogger("horovod.part").log(level, "it is %s", name)


def lines(stderr: io.StringIO) -> list[str]:
    return stderr.getvalue().splitlines()


@pytest.mark.parametrize("level", PYTHON_LEVELS)
def test_each_level_shows_itself_and_what_is_worse(level: str, stderr: io.StringIO) -> None:
    logs.follow(from_environ({"HOROVOD_LOG_LEVEL": level, "HOROVOD_LOG_HIDE_TIME": "1"}), 3)
    say_all()
    names = list(PYTHON_LEVELS)
    assert lines(stderr) == [f"[rank 3] it is {name}" for name in names[names.index(level) :]]


def test_lines_have_the_time_unless_it_is_hidden(stderr: io.StringIO) -> None:
    logs.follow(Settings(), 3)
    LOGGER.warning("one")
    (line,) = lines(stderr)
    assert TIMED.sub("", line) == "one"


def test_a_level_that_nobody_gives_is_the_program_s(stderr: io.StringIO) -> None:
    logs.follow(Settings(), 0)
    say_all()
    assert [line.rpartition(" ")[2] for line in lines(stderr)] == ["warning", "error", "fatal"]
    logs.follow(from_environ({"HOROVOD_LOG_LEVEL": "fatal"}), 0)
    assert LOGGER.level == logging.CRITICAL
    logs.follow(Settings(), 0)
    assert LOGGER.level == logging.NOTSET, "of an earlier life"
    LOGGER.setLevel(logging.ERROR)
    logs.follow(from_environ({"HOROVOD_LOG_LEVEL": "trace"}), 0)
    assert LOGGER.level == logging.ERROR


def test_what_the_program_shows_is_not_shown_twice(stderr: io.StringIO) -> None:
    logs.follow(from_environ({"HOROVOD_LOG_LEVEL": "info"}), 0)
    own = io.StringIO()
    handler = logging.StreamHandler(own)
    logging.getLogger().addHandler(handler)
    try:
        LOGGER.info("once")
    finally:
        logging.getLogger().removeHandler(handler)
    assert (own.getvalue(), stderr.getvalue()) == ("once\n", "")
    LOGGER.info("again")
    assert "again" in stderr.getvalue()
