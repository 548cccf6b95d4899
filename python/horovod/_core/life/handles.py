"""Handles: the integers that users hold for operations in flight, and what happens when one is waited for.

A handle keeps its tensors alive until the engine is done with them, knows how its result is made from the engine's, and
belongs to the session in which it was submitted. Used by the collectives of every framework; one table per process, so
that numbers never repeat. It submits nothing.
"""

from __future__ import annotations

import contextlib
import itertools
import time
import types
from collections.abc import Sequence
from typing import Any, Callable, Final, Optional

from horovod._core.errors import InvalidArgumentError, ShutdownError
from horovod._core.life import session, waiting
from horovod._core.life.engine_port import IN_PROGRESS, OK, UNKNOWN_HANDLE
from horovod._core.life.ordering import Ordering
from horovod._native.lane import FlightTable, LaneFlight

__all__ = [
    "BRIEF_S",
    "DONE",
    "Pending",
    "abandon",
    "add",
    "done",
    "drop",
    "end_within",
    "finish",
    "finish_all",
    "finish_all_briefly",
    "leave",
    "open_handles",
    "poll",
    "synchronize",
]

# Makes the result of an operation: (session, engine handle) -> result.
Finisher = Callable[[session.Session, int], Any]


DONE: Final = 0  # instead of an engine handle: released, or never given out (a group without tensors)
_abandoned: Final[list[Pending]] = []  # nobody waits for them any more


class Pending(LaneFlight):
    """An operation that has been submitted. One that is dropped while the engine may use its tensors lives on in
    `_abandoned`.

    Attributes:
        session: where it was submitted.
        handle: the engine's number; DONE when the engine has forgotten it, and `result` is all that is left.
        what: "allreduce 'layer1.weight'", for messages.
        keep: everything that the engine may still read or write.
        result: what `synchronize` returns, unless there is a `finisher`.
        finisher: makes the result when the engine is done; None = `result` is it.
    """

    __slots__ = ()

    def __init__(
        self,
        owner: session.Session,
        handle: int,
        what: str,
        keep: Any,
        result: Any,
        finisher: Optional[Finisher] = None,
    ) -> None:
        self.session = owner
        self.handle = handle
        self.what = what
        self.keep = keep
        self.result = result
        self.finisher = finisher

    # What it needs is bound here: at the interpreter's exit this module's names are gone before the last operation.
    def dropped(
        self, sessions: types.ModuleType = session, keep_alive: Callable[[Pending], None] = _abandoned.append
    ) -> None:
        """A signal handler that raises may drop it anywhere: the engine still uses the tensors."""
        if self.session is sessions.current:
            keep_alive(self)


# Each single operation on these is atomic; no lock is needed.
_numbers: Final = itertools.count(1)
_table: Final[dict[int, Pending]] = {}
# What has not been waited for, for programs that look.
open_handles: Final = types.MappingProxyType(_table)

# Where the lane files what it submits, and ends it; None: there is no lane.
flights: Final[Any] = None if FlightTable is None else FlightTable(_table, _numbers, Pending, waiting.SLICE_S)

# A brief wait: longer than the ranks of a host are apart in a fast step, and short beside any longer step.
BRIEF_S: Final = 1e-3
_impatient: Final[Any] = None if FlightTable is None else FlightTable({}, _numbers, Pending, BRIEF_S)


def _nothing(number: int) -> None:
    """What a lane answers that does not know the number."""


finish_quickly: Final[Callable[[int], Any]] = _nothing if flights is None else flights.finish


def add(pending: Pending) -> int:
    """Files an operation and returns its number."""
    number = next(_numbers)
    _table[number] = pending
    return number


def drop(number: int) -> None:
    """Forgets an operation that is done, whose result nobody has asked for."""
    _table.pop(number, None)


def leave(number: int) -> None:
    """Forgets an operation that may be under way; its tensors live until it has ended. Nobody asks for its result."""
    pending = _table.pop(number, None)
    if pending is not None and pending.handle != DONE and pending.session is session.current:
        abandon(pending)


def done(result: Any) -> Pending:
    """An operation that is done already: a group without tensors."""
    return Pending(session.require(), DONE, "", None, result)


def poll(handle: int) -> bool:
    """True if `synchronize(handle)` would not wait: the operation has succeeded or failed, or has been waited for.

    Raises:
        InvalidArgumentError: no operation has ever had this handle.
    """
    pending = _table.get(handle)
    if pending is None:
        _require_given("poll", handle)
        return True
    if pending.handle == DONE or pending.session is not session.current:
        return True
    return pending.session.engine.poll(pending.handle) != IN_PROGRESS


def synchronize(handle: int) -> Any:
    """Waits for an operation and returns its result; the handle is then used up.

    Args:
        handle: from an `..._async` function.

    Returns:
        The output tensor(s); None for a handle that is used up.

    Raises:
        InvalidArgumentError: no operation has ever had this handle.
        MismatchError: the members disagree about the operation.
        HorovodInternalError: it failed for another reason: a rank died, the engine is shutting down, a time limit
            passed.
    """
    result = finish_quickly(handle) if isinstance(handle, int) else None
    if result is not None:
        return result
    pending = _table.get(handle)
    if pending is None:
        _require_given("synchronize", handle)
        return None
    # What a signal handler raises comes out of here; the handle then stays valid.
    try:
        status = _wait(pending)
    except ShutdownError:
        _table.pop(handle, None)
        raise
    if _table.pop(handle, None) is None:  # another thread was faster; what failed has failed for both
        if status not in (OK, UNKNOWN_HANDLE):
            raise pending.session.engine.error(status)
        return None
    return _take(pending, status)


def _require_given(function: str, handle: Any) -> None:
    """Raises InvalidArgumentError unless the number has been given to an operation."""
    # The next number is used up by this: numbers need not be dense.
    if type(handle) is not int or not 0 < handle < next(_numbers):
        raise InvalidArgumentError(
            f"{function} needs a handle that a function whose name ends in _async returned. Received: {handle!r}, "
            "which is not a handle of this process."
        )


def finish(pending: Pending) -> Any:
    """As `synchronize`, for an operation that is in no table because its caller waits at once."""
    try:
        status = _wait(pending)
    except BaseException:
        # A signal handler raised (Ctrl-C): the engine still uses the tensors.
        abandon(pending)
        raise
    return _take(pending, status)


def finish_all(pendings: Sequence[Pending]) -> bool:
    """Waits for operations of which nothing but their end is wanted, in one call of the engine.

    Returns:
        True if all of them were successful: they are used up. False: none is; `finish` each to learn its failure.
    """
    if flights is not None and flights.finish_all(pendings):
        return True
    current = session.current
    if current is None or not all(pending.session is current and _ends_by_release(pending) for pending in pendings):
        return False
    numbers = [pending.handle for pending in pendings]
    status = IN_PROGRESS
    try:
        while status == IN_PROGRESS:
            status = current.engine.finish_all(numbers, waiting.SLICE_S)
    except BaseException:  # a signal handler raised: the engine still uses the tensors
        abandon(*pendings)
        raise
    if status != OK:
        return False
    for pending in pendings:
        pending.handle = DONE
    return True


def finish_all_briefly(pendings: Sequence[Pending]) -> bool:
    """`finish_all` where a lane waits, for BRIEF_S at most. False: all handles stay valid; one may have failed."""
    return _impatient is not None and bool(_impatient.finish_all(pendings))


def end_within(pendings: Sequence[Pending], timeout_s: float) -> bool:
    """Waits until operations have ended, well or not, for some seconds at most; True if all have. Their handles stay
    valid."""
    deadline = time.monotonic() + timeout_s
    for pending in pendings:
        if pending.handle == DONE or pending.session is not session.current:
            continue
        status = IN_PROGRESS
        while status == IN_PROGRESS:  # a signal ends a wait early
            left = deadline - time.monotonic()
            status = pending.session.engine.wait(pending.handle, min(max(left, 0.0), waiting.SLICE_S))
            if status == IN_PROGRESS and left <= 0:
                return False
    return True


def _ends_by_release(pending: Pending) -> bool:
    """Whether nothing is left to do for its result once the engine has released it."""
    finisher = pending.finisher
    return finisher is None or (type(finisher) is Ordering and finisher.needless())


def _wait(pending: Pending) -> int:
    """The status of the operation; when it is OK and nothing has to be fetched, the engine's handle is released."""
    number = pending.handle
    if number == DONE:
        return OK
    owner = pending.session
    if owner is not session.current:
        raise ShutdownError(f"{pending.what} was not waited for before hvd.shutdown(); its result is lost.")
    if pending.finisher is not None and not _ends_by_release(pending):
        return waiting.wait(owner.engine, number)
    status = owner.engine.finish(number, waiting.SLICE_S)
    while status == IN_PROGRESS:
        status = owner.engine.finish(number, waiting.SLICE_S)
    # Unknown: another thread was faster, or a signal handler raised just after the release.
    if status in (OK, UNKNOWN_HANDLE):
        pending.handle = DONE
        return OK
    return status


def _take(pending: Pending, status: int) -> Any:
    if pending.handle == DONE:
        return pending.result
    engine = pending.session.engine
    error = None if status == OK else engine.error(status)
    try:
        if error is not None:
            raise error
        return pending.result if pending.finisher is None else pending.finisher(pending.session, pending.handle)
    finally:
        engine.release(pending.handle)
        pending.handle = DONE


def abandon(*pendings: Pending) -> None:
    """Keeps the tensors of an operation alive that nobody waits for any more (Ctrl-C in a blocking call), until it is
    done."""
    _abandoned.extend(pendings)
    forget_finished()  # and passes on what is not: a submission whose caller was going to drive has not been sent yet


def forget_finished() -> None:
    """Lets go of abandoned operations that have ended."""
    for pending in list(_abandoned):
        if pending.session is not session.current or pending.session.engine.poll(pending.handle) != IN_PROGRESS:
            with contextlib.suppress(ValueError):  # another thread was faster
                _abandoned.remove(pending)
            if pending.session is session.current:
                pending.session.engine.release(pending.handle)
            pending.handle = DONE


def forget_all() -> None:
    """After a shutdown: the engine holds no tensor any more. Numbers in users' hands stay known, so that waiting for
    one says what happened."""
    for pending in _abandoned:
        pending.handle = DONE
    _abandoned.clear()
    for pending in list(_table.values()):
        if pending.handle != DONE:
            pending.keep = pending.result = pending.finisher = None
