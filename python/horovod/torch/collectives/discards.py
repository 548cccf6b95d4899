"""`SharedName`: a parameter's name in the negotiation, which tells whether steps were discarded before it.

A step is discarded when `zero_grad()` follows `backward()` without `step()`. Where one rank alone computes gradients
and discards them (it evaluates with a backward pass), they have met the other ranks' gradients of a step, and this
rank would be one step ahead from then on. So names end with `.after_discarded_step` after an odd number of discarded
steps: ranks that differ wait for each other, and the stall report names them. One bit is enough, since a step ends only
when all ranks have submitted it under the same names: the numbers differ by one at most then, and ranks that differ end
no step any more. Used by `optimizer_names` and `reducer`.
"""

from __future__ import annotations

from typing import Any, Final

from horovod._core.life import session

__all__ = ["SharedName", "changes", "discard_step", "follow", "forget"]

_SUFFIX: Final = ".after_discarded_step"


class _Count:
    """How often any name has changed, and the session in which that was."""

    def __init__(self) -> None:
        self.changes = 0
        self.era = 0
        self.session: object = None


_count = _Count()


def changes() -> int:
    """Another number than before if names may have changed."""
    if _count.session is not session.current:
        _count.session = session.current
        forget()  # ranks that join with a new session have discarded nothing
    return _count.changes


def forget() -> None:
    """All ranks have joined: those that were first do not know of what the others have discarded since."""
    _count.era += 1
    _count.changes += 1


class SharedName:
    """See the module. One for all optimizers of a parameter.

    Args:
        base: the name while nothing has been discarded.
    """

    __slots__ = ("_era", "_is_odd", "base")

    def __init__(self, base: str) -> None:
        self.base = base
        self._is_odd = False
        self._era = 0

    @property
    def is_odd(self) -> bool:
        """True after an odd number of discarded steps."""
        changes()
        return self._is_odd and self._era == _count.era

    @is_odd.setter
    def is_odd(self, is_odd: bool) -> None:
        changes()
        self._is_odd, self._era = is_odd, _count.era
        _count.changes += 1

    @property
    def current(self) -> str:
        """The name as the other ranks see it now."""
        return self.base + _SUFFIX if self.is_odd else self.base


def discard_step(access: Any) -> None:
    """Ends the step of an optimizer if it has begun; its gradients are used no more.

    Args:
        access: see `horovod.torch.gradients.reducer.GradientAccess`.
    """
    taken_over = access.handover.end_earlier()
    if taken_over:  # a step that another optimizer has begun, and this one has only now
        access.names.discard(taken_over)
        follow(access)
    numbers = list(access.reducer_of)
    if access.step_has_begun:
        # Not those with which another optimizer steps.
        missing = set(access.missing())
        numbers = [n for n in numbers if n in missing or access.reducer_of[n].has_submitted(n)]
        access.settle()
    if access.settled_early:
        access.names.discard(numbers)
        follow(access)
    access.forget_settled()


def follow(access: Any) -> None:
    """Gives the gradients of an optimizer their present names."""
    access.discards_seen = changes()
    for reducer, numbers in zip(access.reducers, access.batches):
        reducer.names.rename({number: access.names.negotiated(number) for number in numbers})
