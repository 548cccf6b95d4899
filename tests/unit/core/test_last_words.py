"""What a rank says when an exception ends it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from horovod._core.errors import InvalidArgumentError, MismatchError, PeerLostError
from horovod._core.life.ending import last_words


def test_one_line_of_bounded_length() -> None:
    assert last_words.one_line(ValueError("bad batch")) == "ValueError: bad batch"
    assert last_words.one_line(ValueError("two\n lines")) == "ValueError: two lines"
    assert last_words.one_line(KeyboardInterrupt()) == "KeyboardInterrupt"
    assert len(last_words.one_line(ValueError("x" * 5000))) == 1000
    assert "InvalidArgumentError: wrong" in last_words.one_line(InvalidArgumentError("wrong"))


def test_an_exception_whose_text_fails() -> None:
    class Nasty(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    assert "Nasty" in last_words.one_line(Nasty())


@pytest.mark.parametrize("consequence", [MismatchError("m"), PeerLostError("rank 2 died")])
def test_what_another_rank_has_caused_is_no_reason(consequence: Exception) -> None:
    assert last_words.one_line(consequence) == ""
    wrapped = RuntimeError("training failed")
    wrapped.__cause__ = consequence
    assert last_words.one_line(wrapped) == ""
    while_handling = KeyError("k")
    while_handling.__context__ = wrapped
    assert last_words.one_line(while_handling) == ""


def test_exits_are_no_exceptions() -> None:
    assert last_words.one_line(None) == last_words.one_line(SystemExit(1)) == ""


def test_a_shutdown_in_a_finally_says_why() -> None:
    with pytest.raises(ValueError, match="bad batch"):
        try:
            raise ValueError("bad batch")
        finally:
            assert last_words.now() == "ValueError: bad batch"
    assert last_words.now() == ""


def test_an_exception_that_is_handled_further_out_is_no_reason() -> None:
    def train() -> str:
        return last_words.now()  # a good end

    try:
        raise FileNotFoundError("no checkpoint yet")
    except FileNotFoundError:
        assert train() == ""


WATCHED = """
import sys
from horovod._core.life import session
from horovod._core.life.ending import last_words

sys.excepthook = lambda *args: print("called", repr(args))
session.current = object()
last_words.watch()
last_words.watch()
sys.excepthook(ValueError, ValueError("bad batch"), None)
print("now", last_words.now())
session.current = None  # a forked child is no rank
sys.excepthook(KeyError, KeyError("k"), None)
print("now", last_words.now())
"""


def test_the_hook_that_was_there_is_called() -> None:
    said = subprocess.run([sys.executable, "-c", WATCHED], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == [
        "called (<class 'ValueError'>, ValueError('bad batch'), None)",
        "now ValueError: bad batch",
        "called (<class 'KeyError'>, KeyError('k'), None)",
        "now ValueError: bad batch",
    ]
