"""What the workers return: all results, or the failure that explains the others. Used by `crew`."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Any, Callable, Final, NamedTuple, Optional

from horovod._core.errors import HorovodInternalError

LAP_S: Final = 0.1
# After a rank has lost another one: the reason comes from that one, or from Ray, which may take longer.
_REASON_S: Final = 3.0
_LENGTHS: Final = re.compile(r"\s+Some common causes include.*", re.DOTALL)


class Failure(NamedTuple):
    """What a rank has ended with."""

    rank: int
    error: Exception


class Gathered(NamedTuple):
    """What the workers have returned.

    Attributes:
        values: by rank, of those that have.
        failure: None: all have, or time was over.
    """

    values: dict[int, Any]
    failure: Optional[Failure] = None


def gather(
    ray: Any,
    references: Sequence[Any],
    patience_s: Optional[float] = None,
    meanwhile: Optional[Callable[[], None]] = None,
) -> Gathered:
    """Waits for all of them, or for the first failure.

    Args:
        ray: the module.
        references: by rank.
        patience_s: the most to wait; None: as long as it takes, because functions of users do.
        meanwhile: called several times a second while it waits.
    """
    ranks = {reference: rank for rank, reference in enumerate(references)}
    pending = list(references)
    values: dict[int, Any] = {}
    failures: list[Failure] = []
    until_s = None if patience_s is None else time.monotonic() + patience_s
    while pending and not any(is_reason(each.error) for each in failures):
        left_s = None if until_s is None else max(0.0, until_s - time.monotonic())
        if meanwhile is not None:
            meanwhile()
            left_s = LAP_S if left_s is None else min(LAP_S, left_s)
        done, pending = ray.wait(pending, num_returns=1, timeout=left_s)
        if not done and (until_s is None or time.monotonic() < until_s):
            continue
        if not done:
            break
        more, pending = ray.wait(pending, num_returns=len(pending), timeout=0) if pending else ([], [])
        for reference in (*done, *more):
            try:
                values[ranks[reference]] = ray.get(reference)
            except Exception as error:  # of the user's function, or Ray's of the actor
                failures.append(Failure(ranks[reference], error))
        if failures:
            reasons_s = time.monotonic() + _REASON_S
            until_s = reasons_s if until_s is None else min(until_s, reasons_s)
    reasons = [each for each in failures if is_reason(each.error)]
    return Gathered(values, next(iter(reasons or failures), None))


def is_reason(error: Exception) -> bool:
    """The error is not the mere consequence of another rank's."""
    return not isinstance(error, HorovodInternalError)


def is_death(ray: Any, error: Exception) -> bool:
    """An error that is not of the function is of the actor; else of a result that cannot be unpickled here."""
    return isinstance(error, ray.exceptions.RayError) and not isinstance(error, ray.exceptions.RaySystemError)


def death(error: Exception) -> str:
    """Why an actor has died, from what Ray says."""
    text = _LENGTHS.sub("", str(error)).strip()
    return text.splitlines()[-1].strip() if text else type(error).__name__
