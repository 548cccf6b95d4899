"""`Handover`: an optimizer that is made in the middle of a step of another one, on the same parameters.

A cell of a notebook fails between `backward()` and `step()` and runs again, with the lines that make the optimizer.
What the first one has under way must end before the second one submits gradients of the same names. Ranks may have got
to different places, so making an optimizer waits for nobody; the first backward pass, `step()` or `zero_grad()` of the
second one does. Used by `reducer`.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Callable, Final

import torch

from horovod._core.errors import HorovodError
from horovod.torch.gradients.after_pass import AfterPass
from horovod.torch.gradients.hooks import leave_out, owner_of, wait_and_leave_out

__all__ = ["Handover"]

_GONE: Final = torch.empty(0)  # in the place of a parameter


class Handover:
    """One optimizer's part in it.

    Args:
        access: its `GradientAccess`.

    Attributes:
        kept: the access itself, while it has something under way; its hooks hold this list. An optimizer that is gone
            on one rank waits for the garbage collector on another, and both must end the step alike.
        earlier: the accesses of the optimizers that had something under way, and by what numbers they know the
            parameters that they have handed over.
        is_retired: the optimizer is gone, and its access lives until another one has what is under way, or the
            parameters are gone too. It submits nothing by itself.
    """

    def __init__(self, access: Any) -> None:
        self._access: Callable[[], Any] = weakref.ref(access)
        self.kept: list[Any] = []
        self.earlier: dict[Any, list[int]] = {}
        self.is_retired = False
        self._parameters: list[weakref.ref[torch.Tensor]] = []  # of a retired access, which must not keep them alive

    def begin_pass(self) -> None:
        """The first gradient of a pass has been computed: something is under way soon."""
        self.end_earlier()
        self.kept[:] = [self._access()]

    def end_step(self) -> None:
        """Nothing is under way any more."""
        self.kept.clear()

    def retire(self) -> None:
        """The optimizer is gone. The hooks keep the access; Python's collector does not see this circle."""
        self.is_retired = True
        access = self._access()
        if access is None or self._parameters:
            return
        self._parameters = [weakref.ref(parameter) for parameter in access.parameters]
        access.parameters[:] = [_GONE] * len(access.parameters)
        for other in self.earlier:
            if other.handover.is_retired:
                other.handover.retire()

    def revive(self) -> None:
        """Gives the access of an optimizer that is gone its parameters back: another one ends its step."""
        parameters, self._parameters = self._parameters, []
        if parameters:
            found = [reference() for reference in parameters]
            self._access().parameters[:] = [_GONE if parameter is None else parameter for parameter in found]

    @contextlib.contextmanager
    def revived(self) -> Iterator[None]:
        """In the body the access has its parameters, also if its optimizer is gone."""
        was_away = bool(self._parameters)
        self.revive()
        try:
            yield
        finally:
            if was_away:
                self.retire()

    def take_over(self, numbers: Sequence[int]) -> None:
        """The hooks of the optimizer are about to be put on parameters, which may have those of others. Notes what the
        others have under way. Waits for nobody.

        Args:
            numbers: of those parameters.
        """
        access = self._access()
        parts: dict[Any, list[torch.Tensor]] = {}
        for parameter in map(access.parameters.__getitem__, numbers):
            other = owner_of(parameter)
            if other is not None and other is not access:
                parts.setdefault(other, []).append(parameter)
        for other, parameters in parts.items():
            other.handover.revive()
            if other.step_has_begun:
                numbers_there = other.names.numbers_of(parameters)
                _leave_in_flight(other, numbers_there)
                self.earlier.setdefault(other, []).extend(numbers_there)
            chosen = set(map(id, parameters))
            for before, theirs in other.handover.earlier.items():
                before.handover.revive()
                handed_over = [number for number in theirs if id(before.parameters[number]) in chosen]
                self.earlier.setdefault(before, []).extend(handed_over)
        if self.earlier:
            self.kept[:] = [access]

    def end_earlier(self) -> list[int]:
        """Waits for what the others had under way; they submit no more of these gradients in that step.

        Returns:
            The numbers of those that have been reduced as this optimizer would have done it.
        """
        if not self.earlier:
            return []
        access = self._access()
        earlier, self.earlier = self.earlier, {}
        self.kept.clear()
        found: list[int] = []
        for other, numbers in earlier.items():
            other.handover.revive()
            try:
                reduced = wait_and_leave_out(other, numbers)
            except HorovodError:  # of a step that nobody ends; if the engine is gone, this optimizer meets it next
                leave_out(other, numbers)
                continue
            other.forget_settled()  # its next step is another one
            if other.ledger.terms == access.ledger.terms:
                parameters = [other.parameters[number] for number, is_reduced in zip(numbers, reduced) if is_reduced]
                found += access.names.numbers_of(parameters)
        return found


def _leave_in_flight(access: Any, numbers: Collection[int]) -> None:
    """Another optimizer takes these parameters over in the middle of a step. Submits those that this rank has left out:
    other ranks may have computed them, and no other optimizer is going to. Lets stand-ins take the place of what a pass
    that has failed left under way, so that the next pass waits before it adds to these."""
    with contextlib.suppress(HorovodError):  # such as when the engine is gone; the next submission meets it too
        for number in access.missing():
            if number in numbers:
                access.reducer_of[number].submit(number)
    under_way = access.under_way
    for number in numbers:
        if number in under_way.sent and number not in under_way.stand_ins:
            under_way.stand_in(number, AfterPass(access))
