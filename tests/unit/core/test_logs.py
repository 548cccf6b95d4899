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
Capture = pytest.CaptureFixture[str]
TIMED = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2},[0-9]{3} \[rank 3\] ")


@pytest.fixture(autouse=True)
def untouched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A logger that the program has not configured."""
    level, handlers = LOGGER.level, LOGGER.handlers[:]
    monkeypatch.setattr(LOGGER, "propagate", False)
    LOGGER.setLevel(logging.NOTSET)
    logs.follow(Settings(), 0)  # forgets what a life before has set
    yield
    LOGGER.setLevel(logging.NOTSET)
    logs.follow(Settings(), 0)
    LOGGER.setLevel(level)
    LOGGER.handlers[:] = handlers


def follow(settings: Settings, rank: int) -> None:
    """In a process without pytest, whose handlers are the program's here."""
    LOGGER.handlers.clear()
    logs.follow(settings, rank)


def say_all() -> None:
    for name, level in PYTHON_LEVELS.items():
        logging.getLogger("horovod.part").log(level, "it is %s", name)


def lines(capsys: Capture) -> list[str]:
    return capsys.readouterr().err.splitlines()


@pytest.mark.parametrize("level", PYTHON_LEVELS)
def test_each_level_shows_itself_and_what_is_worse(level: str, capsys: Capture) -> None:
    follow(from_environ({"HOROVOD_LOG_LEVEL": level, "HOROVOD_LOG_HIDE_TIME": "1"}), 3)
    say_all()
    names = list(PYTHON_LEVELS)
    assert lines(capsys) == [f"[rank 3] it is {name}" for name in names[names.index(level) :]]


def test_lines_have_the_time_unless_it_is_hidden(capsys: Capture) -> None:
    follow(Settings(), 3)
    LOGGER.warning("one")
    (line,) = lines(capsys)
    assert TIMED.sub("", line) == "one"


def test_a_level_that_nobody_gives_is_the_program_s(capsys: Capture) -> None:
    follow(Settings(), 0)
    say_all()
    assert [line.rpartition(" ")[2] for line in lines(capsys)] == ["warning", "error", "fatal"]
    follow(from_environ({"HOROVOD_LOG_LEVEL": "fatal"}), 0)
    assert LOGGER.level == logging.CRITICAL
    follow(Settings(), 0)
    assert LOGGER.level == logging.NOTSET, "of an earlier life"
    LOGGER.setLevel(logging.ERROR)
    follow(from_environ({"HOROVOD_LOG_LEVEL": "trace"}), 0)
    assert LOGGER.level == logging.ERROR


def test_what_the_program_shows_is_not_shown_twice(capsys: Capture) -> None:
    follow(from_environ({"HOROVOD_LOG_LEVEL": "info"}), 0)
    own = io.StringIO()
    handler = logging.StreamHandler(own)
    LOGGER.addHandler(handler)
    logging.getLogger("horovod.part").info("once")
    LOGGER.removeHandler(handler)
    assert (own.getvalue(), lines(capsys)) == ("once\n", [])
    LOGGER.info("again")
    assert len(lines(capsys)) == 1
