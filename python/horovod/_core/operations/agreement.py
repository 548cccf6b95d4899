"""Agreement before a call that consists of many operations: all ranks make it, or all fail with the reason.

Used by functions that broadcast whole models and optimizers. A rank that finds its arguments wrong must not leave the
others waiting for operations that it never submits.
"""

from __future__ import annotations

from typing import Any, Optional

from horovod._core.errors import HorovodError, MismatchError
from horovod._core.life import session
from horovod._core.life.process_sets import ProcessSet, global_process_set
from horovod._core.operations.objects import allgather_object

__all__ = ["agree"]


def agree(
    function: str, facts: Any, refusal: Optional[HorovodError] = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Gives every member the facts of all, unless a member refuses. Collective.

    Args:
        function: the user's call; begins the message.
        facts: what the call depends on, picklable and small.
        refusal: why this rank cannot take part; None: it can.
        process_set: the ranks that take part.

    Returns:
        The facts in the order of the members' ranks.

    Raises:
        HorovodError: this rank's own refusal.
        MismatchError: another rank refuses; the message has its reason.
    """
    if refusal is not None and session.current is None:
        raise refusal  # there is nobody to tell
    answers = allgather_object((None if refusal is None else str(refusal), facts), f"{function}.agreement", process_set)
    if refusal is not None:
        raise refusal
    for rank, (reason, _) in zip(process_set.ranks or (), answers):
        if reason is not None:
            raise MismatchError(f"{function}: rank {rank} refused: {reason.removeprefix(f'{function}: ')}")
    return [fact for _, fact in answers]
