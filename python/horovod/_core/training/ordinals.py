"""`Ordinals`: numbers of layers and optimizers, for names that are equal on all ranks where the framework's may not
be."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from horovod._core.life import session

__all__ = ["Ordinals"]


class Ordinals:
    """Numbers things from 0 on, in the order in which they are first asked for, which is the same on all ranks.

    What has gone still counts: only its own rank knows when it went, as that depends on garbage collection.

    Args:
        numbers: empty; one with weak keys where these would live too long.
        by_session: starts from 0 in each session, as a rank does that joins an elastic job.
    """

    def __init__(self, numbers: MutableMapping[Any, int], by_session: bool = True) -> None:
        self._numbers = numbers
        self._by_session = by_session
        self._session: object = None
        self._next = 0

    def of(self, key: Any) -> int:
        """The number of this one."""
        if self._by_session and self._session is not session.current:
            self._session = session.current
            self._numbers.clear()
            self._next = 0
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = self._next
            self._next += 1
        return number
