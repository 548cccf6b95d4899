"""Which of several optimizers of a parameter gets its gradient: the one that was made or has stepped last.

Only one of them may reduce a gradient. The ranks cannot agree on one: an optimizer that the program has dropped may be
gone on some ranks and wait for the garbage collector on others. So names belong to parameters (`optimizer_names`), and
it does not matter to the other ranks which optimizer submits. Used by `reducer`.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from typing import Any, Callable

import torch
from torch.utils.weak import TensorWeakRef, WeakTensorKeyDictionary

from horovod._core.errors import InvalidArgumentError

__all__ = [
    "Ledger",
    "is_elsewhere",
    "leave_out",
    "owner_of",
    "put_hook",
    "take_back_hooks",
    "take_back_orphans",
    "wait_and_leave_out",
]


class Ledger:
    """Facts about one optimizer for the other optimizers of its parameters. Outlives the optimizer.

    Args:
        access: the optimizer's access to its gradients.
        terms: how it reduces: equal for those that may reduce in each other's place.

    Attributes:
        reductions: how many times it has reduced the gradients.
        is_fresh: True if no gradient has been computed since the last reduction.
        is_shared: True if another optimizer has, or had, a parameter of it.
        has_lost: True if a parameter now gives its gradient to another optimizer.
        seen: `reductions` of the other optimizers when this one last took hooks back from them.
    """

    def __init__(self, access: Any, terms: tuple[Any, ...]) -> None:
        self.access = weakref.ref(access)
        self.terms = terms
        self.reductions = 0
        self.is_fresh = False
        self.is_shared = False
        self.has_lost = False
        self._reduced: dict[int, TensorWeakRef] = {}  # by id of the parameter
        self.seen: Any = weakref.WeakKeyDictionary()

    def reduce(self, parameters: Iterable[torch.Tensor]) -> None:
        """The gradients of these parameters have been reduced."""
        self.reductions += 1
        self.is_fresh = True
        if self.is_shared:
            self._reduced = {id(p): TensorWeakRef(p.grad) for p in parameters if p.grad is not None}

    def has_just_reduced(self, parameter: torch.Tensor) -> bool:
        """True if the gradient of a parameter is the last one that it has reduced, and not one set by hand since."""
        found = self._reduced.get(id(parameter))
        return self.is_fresh and found is not None and found() is parameter.grad

    @property
    def has_reduced(self) -> bool:
        """True if the gradients of its parameters are those that it has reduced."""
        return self.is_fresh and not self.has_lost


_taker: Any = WeakTensorKeyDictionary()  # parameter -> (the hook's handle, ledger)


def put_hook(parameter: torch.Tensor, ledger: Ledger, hook: Callable[[Any], None]) -> Any:
    """Lets a parameter call `hook` when its gradient has been accumulated, instead of the hook of another optimizer.

    Returns:
        The hook's handle.
    """
    earlier = _taker.get(parameter)
    register: Any = parameter.register_post_accumulate_grad_hook
    handle = register(hook)
    _taker[parameter] = handle, ledger
    if earlier is not None:
        earlier[0].remove()
        if earlier[1] is not ledger:
            earlier[1].has_lost = True
            if earlier[1].access() is not None:
                earlier[1].is_shared = ledger.is_shared = True
    return handle


def owner_of(parameter: torch.Tensor) -> Any:
    """The access of the optimizer that has its hook on a parameter; None if there is none, or none any more."""
    taker = _taker.get(parameter)
    return None if taker is None else taker[1].access()


def is_elsewhere(parameter: torch.Tensor, ledger: Ledger) -> bool:
    """True while another optimizer has its hook on a parameter that this one has had one on."""
    if not ledger.has_lost:
        return False
    taker = _taker.get(parameter)
    return taker is None or (taker[1] is not ledger and taker[1].access() is not None)


def take_back_hooks(access: Any) -> None:
    """An optimizer steps, and other optimizers have hooks on some of its parameters. Waits for gradients that those
    have submitted, so that this step does not reduce them a second time, and puts its own hooks back.

    Args:
        access: the `GradientAccess` of the optimizer that steps.

    Raises:
        InvalidArgumentError: another optimizer reduces the same parameters on other terms.
    """
    own: Ledger = access.ledger
    lost: dict[Ledger, list[int]] = {}
    for number in access.hooks:
        taker = _taker[access.parameters[number]][1]
        if taker is not own:
            lost.setdefault(taker, []).append(number)
    others = [taker.access() for taker in lost]
    if any(other is not None and other.step_has_begun for other in others):
        access.forget_settled()  # gradients have been computed since this one has reduced any
    for taker, numbers in lost.items():
        if taker.terms != own.terms:
            raise InvalidArgumentError(
                f"The gradient of '{access.names.name(numbers[0])}' is reduced by another DistributedOptimizer, which "
                "was made or has stepped after this one and differs in op, gradient_predivide_factor, compression, "
                "sparse_as_dense or process set. Give both the same, or use one optimizer for each parameter."
            )
        other = taker.access()
        if other is not None:
            other.handover.revive()
            other.handover.earlier.pop(access, None)  # this one waits for its gradients itself
        if other is not None and other.step_has_begun:
            theirs = other.names.numbers_of([access.parameters[number] for number in numbers])
            reduced = wait_and_leave_out(other, theirs)
        else:
            # An optimizer that is gone may have reduced them long ago: they are reduced again.
            is_new = other is not None and taker.reductions > own.seen.get(taker, 0)
            reduced = [is_new and taker.has_just_reduced(access.parameters[number]) for number in numbers]
        leave_out(access, [number for number, is_reduced in zip(numbers, reduced) if is_reduced])
        own.seen[taker] = taker.reductions
        for number in numbers:
            access.put_hook(number)
    own.has_lost = False


def take_back_orphans(access: Any) -> None:
    """Puts an optimizer's hooks back on parameters that a later optimizer took, which is gone on this rank. On other
    ranks it may be there yet: then it submits the same gradients."""
    orphans = []
    for number in access.hooks if access.ledger.has_lost else ():
        owner = owner_of(access.parameters[number])
        if owner is None or owner.handover.is_retired:
            orphans.append(number)
    access.handover.take_over(orphans)
    for number in orphans:
        access.put_hook(number)


def wait_and_leave_out(access: Any, numbers: Sequence[int]) -> list[bool]:
    """Another optimizer steps with these parameters: waits for the gradients that `access` has submitted, and lets it
    submit no others of these.

    Returns:
        For each of the parameters: True if its gradient has been reduced.
    """
    access.land()
    reduced = [access.reducer_of[number].has_submitted(number) for number in numbers]
    leave_out(access, numbers)
    return reduced


def leave_out(access: Any, numbers: Sequence[int]) -> None:
    """Another optimizer has reduced these gradients, or will: the next `synchronize` of this one does not."""
    for reducer in access.reducers:
        reducer.leave_out(numbers)
