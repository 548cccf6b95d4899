"""What this rank says to the others when an exception ends it.

A rank that ends takes part in nothing any more, so the operations of the others fail. Its goodbye says why, and they
fail with "rank 1 ended with ValueError: ..." instead of a guess. A failure that came from another rank is no reason of
this one: a rank that passed it on would be taken for the culprit.
"""

from __future__ import annotations

import inspect
import sys
import traceback
from types import TracebackType
from typing import Final, Optional, Union

from horovod._core.errors import CollectiveTimeoutError, HorovodInternalError, PeerLostError, ShutdownError
from horovod._core.life import membership, session

_MOST_CHARACTERS: Final = 1000
_LOSSES: Final = (CollectiveTimeoutError, PeerLostError, ShutdownError)

_uncaught = ""
_watching = False


def watch() -> None:
    """From now on notes the exception that ends this process. The hook that was there goes on being called."""
    global _watching
    if _watching:
        return
    _watching = True
    before = sys.excepthook

    def note(kind: type[BaseException], error: BaseException, trace: Optional[TracebackType]) -> None:
        global _uncaught
        # A forked child is not a rank, and an interactive interpreter goes on after an error.
        if session.current is not None and not hasattr(sys, "ps1"):
            _uncaught = one_line(error)
            if is_loss_of_another_rank(error):
                membership.say_lost()
        before(kind, error, trace)

    sys.excepthook = note


def now() -> str:
    """Why this rank ends, or "": an exception that nobody caught, or one on its way through a `finally`."""
    return _uncaught or one_line(_passing())


def _passing() -> Optional[BaseException]:
    """The exception on its way through the function that has called `shutdown`.

    One that is being handled further out (`except FileNotFoundError: train(fresh())`) is not: the end is a good one.
    """
    frame = inspect.currentframe()
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("horovod."):
        frame = frame.f_back
    error = sys.exc_info()[1]
    trace = None if error is None else error.__traceback__
    while trace is not None and trace.tb_frame is not frame:
        trace = trace.tb_next
    return error if trace is not None else None


def one_line(error: Optional[BaseException]) -> str:
    """ "ValueError: bad batch", on one line and not too long; "" for what another rank has caused, and for exits."""
    if error is None or isinstance(error, (SystemExit, GeneratorExit)) or _came_from_another_rank(error):
        return ""
    text = " ".join("".join(traceback.format_exception_only(type(error), error)).split())
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 3] + "..."


def is_loss_of_another_rank(error: BaseException) -> bool:
    """The error is the loss of another rank, or follows from it."""
    return _chain_has(error, _LOSSES)


def _came_from_another_rank(error: BaseException) -> bool:
    return _chain_has(error, HorovodInternalError)


def _chain_has(error: BaseException, kinds: Union[type[BaseException], tuple[type[BaseException], ...]]) -> bool:
    seen: set[int] = set()
    link: Optional[BaseException] = error
    while link is not None and id(link) not in seen:
        if isinstance(link, kinds):
            return True
        seen.add(id(link))
        link = link.__cause__ or link.__context__
    return False
