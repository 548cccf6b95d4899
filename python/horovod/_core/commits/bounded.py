"""A place for durable commits whose small operations have a deadline: while the server of a network file system is
away, calls to it never return.

Used by `owner` and `choice`, and by the ranks as they begin. An operation runs in a thread; after the deadline the
caller goes on with an error, and the thread is left to the kernel. There is one operation at a time, so a file system
that hangs for a day holds one thread.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import threading
import time
from collections.abc import Iterator
from typing import Any, Callable, Final, Generic, Optional, TypeVar, cast

from horovod._core.commits.places import Pieces, Place, place
from horovod._core.errors import InvalidArgumentError

__all__ = ["DEADLINE_S", "Bounded", "NoAnswerError", "answering", "bounded"]

DEADLINE_S: Final = 60.0
_T = TypeVar("_T")

_log: Final = logging.getLogger("horovod")


class NoAnswerError(TimeoutError):
    """An operation of a file system has not ended by its deadline."""

    def __init__(self, what: str, waited_s: float) -> None:
        super().__init__(errno.ETIMEDOUT, f"{what} has taken longer than {waited_s:g} s")


class _Call(Generic[_T]):
    """A call in a thread of its own."""

    def __init__(self, call: Callable[[], _T]) -> None:
        self._call = call
        self.value: Optional[_T] = None
        self.error: Optional[BaseException] = None
        self.ended = threading.Event()
        threading.Thread(target=self._run, name="horovod-place", daemon=True).start()

    def _run(self) -> None:
        try:
            self.value = self._call()
        except BaseException as error:  # raised again in the caller
            self.error = error
        finally:
            self.ended.set()

    def wait(self, until_s: float, what: str) -> None:
        """Until the call has ended.

        Raises:
            NoAnswerError: it has not ended by then.
        """
        if not self.ended.wait(max(0.0, until_s - time.monotonic())):
            raise NoAnswerError(what, DEADLINE_S)


def bounded(where: str) -> Bounded:
    """The place of a path or a URL.

    Raises:
        UnsupportedError: a URL, and fsspec is not installed.
        InvalidArgumentError: the folder cannot be made, the URL is of no kind that fsspec knows, or nothing answers.
    """
    with answering(where):
        return Bounded(_result(_Call(lambda: place(where)), time.monotonic() + DEADLINE_S, "opening it"))


@contextlib.contextmanager
def answering(where: str) -> Iterator[None]:
    """Turns a NoAnswerError of the body into the error that users see.

    Raises:
        InvalidArgumentError: the place does not answer.
    """
    try:
        yield
    except NoAnswerError as error:
        raise InvalidArgumentError(
            f"HOROVOD_ELASTIC_COMMIT_DIR: {where} does not answer: {error.strerror}. Check that the file system and "
            "its server are up, or name another folder."
        ) from None


class Bounded:
    """See the head of the file; a `Place`.

    Args:
        real: the place.
    """

    def __init__(self, real: Place) -> None:
        self._real = real
        self._turn = threading.Lock()
        self._last: Optional[_Call[Any]] = None
        self.where = real.where

    def names(self) -> list[str]:
        return self._within("listing it", self._real.names)

    def require_own(self) -> None:
        self._within("looking at its rights", self._real.require_own)

    def require_writable(self) -> None:
        self._within("making a file there", self._real.require_writable)

    def read(self, name: str, strangers: bool) -> bytearray:
        """As `Place.read`. A commit may be large, so there is no deadline, but a line in the log every minute."""
        call, waited_s = _Call(lambda: self._real.read(name, strangers)), 0.0
        while not call.ended.wait(DEADLINE_S):
            waited_s += DEADLINE_S
            text = "reading the durable commit %s from %s takes longer than %g s; does its file system answer?"
            _log.warning(text, name, self.where, waited_s)
        return _result(call, time.monotonic(), f"reading {name}")

    def write(self, name: str, pieces: Pieces) -> None:
        """As `Place.write`, without a deadline: the caller has a thread for it."""
        self._real.write(name, pieces)

    def remove(self, name: str) -> None:
        self._within(f"removing {name}", lambda: self._real.remove(name))

    def mark(self, name: str, data: bytes, new: bool) -> None:
        self._within(f"writing {name}", lambda: self._real.mark(name, data, new))

    def peek(self, name: str, most: int) -> bytes:
        return self._within(f"reading {name}", lambda: self._real.peek(name, most))

    def _within(self, what: str, call: Callable[[], _T]) -> _T:
        until_s = time.monotonic() + DEADLINE_S
        if not self._turn.acquire(timeout=DEADLINE_S):
            raise NoAnswerError(what, DEADLINE_S)
        try:
            if self._last is not None:
                self._last.wait(until_s, what)
            self._last = latest = _Call(call)
            return _result(latest, until_s, what)
        finally:
            self._turn.release()


def _result(call: _Call[_T], until_s: float, what: str) -> _T:
    call.wait(until_s, what)
    if call.error is not None:
        raise call.error
    return cast(_T, call.value)
