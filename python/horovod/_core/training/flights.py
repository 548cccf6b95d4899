"""`Flights`: the submissions of a reducer that have not been waited for. Used by `reducer`, which makes them."""

from __future__ import annotations

import contextlib
from collections.abc import Container, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Callable, Optional

from horovod._core.errors import HorovodError
from horovod._core.life import handles
from horovod._core.operations.sparse import SparseReduction

__all__ = ["Flight", "Flights"]


@dataclass(frozen=True, eq=False)
class Flight:
    """Gradients under way: one dense submission (keys, their tensors and compression contexts), or one sparse gradient,
    whose tensor is not here."""

    keys: Sequence[Any]
    tensors: Sequence[Any]
    contexts: Sequence[Any]
    pending: Optional[handles.Pending]
    sparse: Optional[SparseReduction] = None

    @property
    def parts(self) -> Sequence[handles.Pending]:
        """Its operations."""
        if self.pending is not None:
            return (self.pending,)
        return self.sparse.parts if self.sparse is not None else ()


class Flights:
    """What has been submitted, in two kinds: `plain`, by key, of which nothing is left to do when it has landed, and
    the rest.

    Args:
        finish: (flight, result of its operation): stores what has landed.
    """

    def __init__(self, finish: Callable[[Flight, Any], None]) -> None:
        self.plain: dict[Hashable, handles.Pending] = {}
        self.others: list[Flight] = []
        self._finish = finish

    def __bool__(self) -> bool:
        return bool(self.plain or self.others)

    def take(self, keys: Optional[Container[Hashable]] = None) -> Flights:
        """All of them, or those of some keys; they are these no more."""
        taken = Flights(self._finish)
        if keys is None:
            taken.plain, self.plain = self.plain, taken.plain
            taken.others, self.others = self.others, taken.others
            return taken
        taken.plain = {key: self.plain.pop(key) for key in list(self.plain) if key in keys}
        taken.others = [flight for flight in self.others if any(key in keys for key in flight.keys)]
        if taken.others:
            self.others = [flight for flight in self.others if flight not in taken.others]
        return taken

    def end_within(self, timeout_s: float) -> bool:
        """True if all end within some seconds, well or not."""
        if self.plain and handles.finish_all_briefly(list(self.plain.values())):
            self.plain.clear()
        return not self or self.have_ended(timeout_s)

    def have_ended(self, timeout_s: float, keys: Optional[Container[Hashable]] = None) -> bool:
        """As `end_within`, for all or those of some keys; uses none up."""
        plain = list(self.plain.items())  # another thread may submit more meanwhile
        chosen = [pending for key, pending in plain if keys is None or key in keys]
        for flight in self.others:
            if keys is None or any(key in keys for key in flight.keys):
                chosen += flight.parts
        return handles.end_within(chosen, timeout_s)

    def land(self) -> None:
        """Waits for all, also after one has failed: no tensor may be in use when the caller goes on. Raises the first
        failure."""
        if not self:
            return
        failure: Optional[Exception] = None
        flying = self._pending()
        plain = list(self.plain.values())
        try:
            for pending in () if not plain or handles.finish_all(plain) else plain:
                try:
                    handles.finish(pending)
                except Exception as error:  # whatever failed, the other gradients are still under way
                    failure = failure or error
            for flight in self.others:
                try:
                    self._land_one(flight)
                except Exception as error:  # as above
                    failure = failure or error
        except BaseException:  # a signal handler raised: the engine still uses the gradients that have not landed
            handles.abandon(*flying)
            raise
        if failure is not None:
            raise failure

    def drop(self) -> None:
        """Waits for all, and leaves the results unused."""
        flying = self._pending()
        try:
            for pending in flying:
                with contextlib.suppress(HorovodError):
                    handles.finish(pending)
            for flight in self.others:
                with contextlib.suppress(HorovodError):
                    if flight.sparse is not None:
                        flight.sparse()
        except BaseException:  # as above
            handles.abandon(*flying)
            raise

    def _land_one(self, flight: Flight) -> None:
        if flight.pending is not None:
            self._finish(flight, handles.finish(flight.pending))
        elif flight.sparse is not None:
            self._finish(flight, flight.sparse())

    def _pending(self) -> list[handles.Pending]:
        return [*self.plain.values(), *(one.pending for one in self.others if one.pending is not None)]
