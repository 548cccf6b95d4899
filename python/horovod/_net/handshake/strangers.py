"""Connections from nobody knows whom while ranks connect: which one goes when there are too many, and what is logged;
and when a rank that lost its place to such a crowd comes again. Used by door, visits and dialler. Pure but for the log.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterable
from typing import NamedTuple, Optional, Protocol, TypeVar, Union

_SHOWN = 3  # lines of the log; any process that can connect could fill it otherwise
_FIRST_S = 0.005
LONGEST_S = 0.5  # between two tries
TRIES = 12  # 3 s in all

log = logging.getLogger("horovod")


class Caller(Protocol):
    """A connection that is not authenticated."""

    @property
    def named(self) -> bool:
        """It has said who it is, with the digest of this job."""


_C = TypeVar("_C", bound=Caller)


def first_to_go(callers: Iterable[_C]) -> Optional[_C]:
    """Whom to drop when there are too many: the oldest that has said nothing (a rank speaks at once), else the oldest.

    Args:
        callers: oldest first.
    """
    oldest = None
    for caller in callers:
        if not caller.named:
            return caller
        oldest = oldest or caller
    return oldest


class Report:
    """Logs what becomes of strangers: a few lines, and how many there were.

    Args:
        who: connects, for messages.
        apart: a log that hangs must not hold the caller up: each line is written by a thread of its own.
    """

    def __init__(self, who: str, apart: bool = False) -> None:
        self._who = who
        self._apart = apart
        self._logged: set[str] = set()
        self._untold = 0

    def tell(self, text: str) -> None:
        """Logs it, once, unless enough has been logged."""
        if text in self._logged:
            return
        if len(self._logged) < _SHOWN:
            self._logged.add(text)
            self._log("%s, connecting: %s.", text)
        else:
            self._untold += 1

    def close(self) -> None:
        """The last line."""
        if self._untold:
            self._log("%s, connecting: %d more messages of this kind are not shown.", self._untold)
            self._untold = 0

    def _log(self, text: str, what: Union[str, int]) -> None:
        if not self._apart:
            log.warning(text, self._who, what)
            return
        with contextlib.suppress(RuntimeError):  # no thread can be started at the moment, or the process is ending
            threading.Thread(target=log.warning, args=(text, self._who, what), daemon=True).start()


class _Wait(NamedTuple):
    tries: int
    until_s: float


class Comebacks:
    """Connections to be opened once more, each after a longer while: (rank, role) pairs."""

    def __init__(self) -> None:
        self._waits: dict[tuple[int, int], _Wait] = {}

    def wait(self, rank: int, role: int, now_s: float, patient: bool) -> bool:
        """Notes that a connection failed; False when it has failed too often.

        Args:
            rank, role: of the connection.
            now_s: the time.
            patient: never too often: the other side is there and busy.
        """
        tries = self._waits[rank, role].tries + 1 if (rank, role) in self._waits else 1
        if tries > TRIES and not patient:
            return False
        delay_s = min(_FIRST_S * 2 ** (tries - 1), LONGEST_S)
        self._waits[rank, role] = _Wait(tries, now_s + delay_s)
        return True

    def due(self, now_s: float) -> list[tuple[int, int]]:
        """The connections whose time has come. Each is given once, unless it fails again."""
        found = [key for key, wait in self._waits.items() if wait.until_s <= now_s]
        for key in found:
            self._waits[key] = _Wait(self._waits[key].tries, float("inf"))
        return found

    def next_s(self) -> float:
        """When the next one is due; infinite when there is none."""
        return min((wait.until_s for wait in self._waits.values()), default=float("inf"))
