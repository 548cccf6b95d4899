"""Which optimizer a parameter hands its gradient to, where several have it: the last one that was made or has stepped.

Only one of them may reduce a gradient, and all ranks must agree which, although on some ranks an optimizer that nobody
uses any more may be gone, and on others wait for the garbage collector. So names belong to parameters
(`optimizer_names`): it does not matter to the other ranks which of the optimizers submits. Used by `reducer`.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, Callable

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from horovod._core.errors import InvalidArgumentError

__all__ = ["Ledger", "hands_to", "put_hook", "share"]


class Ledger:
    """What the other optimizers of a parameter must know of one that reduces its gradients. Lives longer than that.

    Args:
        access: the optimizer's access to its gradients.
        terms: how it reduces: equal for those that may reduce in each other's place.

    Attributes:
        reductions: how many times it has reduced the gradients.
        is_fresh: none has been computed since.
        has_lost: a parameter hands its gradient to another one now.
        seen: other optimizers' reductions at its own last one.
    """

    def __init__(self, access: Any, terms: tuple[Any, ...]) -> None:
        self.access = weakref.ref(access)
        self.terms = terms
        self.reductions = 0
        self.is_fresh = False
        self.has_lost = False
        self.seen: Any = weakref.WeakKeyDictionary()

    @property
    def has_reduced(self) -> bool:
        """Its parameters' gradients are those that it has reduced."""
        return self.is_fresh and not self.has_lost


_taker: Any = WeakTensorKeyDictionary()  # parameter -> (the hook's handle, ledger)


def put_hook(parameter: torch.Tensor, ledger: Ledger, hook: Callable[[Any], None]) -> Any:
    """Has a parameter call `hook` when its gradient has been accumulated, and no other optimizer's. The hook's
    handle."""
    earlier = _taker.get(parameter)
    register: Any = parameter.register_post_accumulate_grad_hook
    handle = register(hook)
    _taker[parameter] = handle, ledger
    if earlier is not None:
        earlier[0].remove()
        earlier[1].has_lost = earlier[1].has_lost or earlier[1] is not ledger
    return handle


def hands_to(parameter: torch.Tensor, ledger: Ledger) -> bool:
    """Whether a parameter, which has had a hook of this optimizer's, hands its gradient to it now."""
    return _taker[parameter][1] is ledger


def share(access: Any) -> None:
    """Another optimizer has some of the parameters of one that steps, and their hooks: takes what that has reduced or
    submitted, and the hooks.

    Args:
        access: see `GradientAccess`.

    Raises:
        InvalidArgumentError: the other one reduces them on other terms.
    """
    own: Ledger = access.ledger
    lost: dict[Ledger, list[int]] = {}
    for number in access.hooks:
        taker = _taker[access.parameters[number]][1]
        if taker is not own:
            lost.setdefault(taker, []).append(number)
    for taker, numbers in lost.items():
        if taker.terms != own.terms:
            raise InvalidArgumentError(
                f"The gradient of '{access.names.name(numbers[0])}' is reduced by another DistributedOptimizer, which "
                "was made or has stepped after this one and differs in op, gradient_predivide_factor, compression, "
                "sparse_as_dense or process set. Give both the same, or use one optimizer for each parameter."
            )
        other = taker.access()
        if other is not None and other.pending:
            reduced = _hand_over(other, [access.parameters[number] for number in numbers])
        else:
            # Of one that is gone nothing is taken: that may have been long ago.
            is_fresh = other is not None and taker.is_fresh and taker.reductions > own.seen.get(taker, 0)
            reduced = [is_fresh and access.parameters[number].grad is not None for number in numbers]
        _leave(access, [number for number, is_reduced in zip(numbers, reduced) if is_reduced])
        own.seen[taker] = taker.reductions
        for number in numbers:
            access.put_hook(number)
    own.has_lost = False


def _hand_over(access: Any, parameters: Sequence[torch.Tensor]) -> list[bool]:
    """Another optimizer steps with these: waits for what is under way, and leaves the rest of these to it.

    Returns:
        Which of them have been reduced.
    """
    access.land()
    numbers = access.names.numbers_of(parameters)
    reduced = [access.reducer_of[number].has_submitted(number) for number in numbers]
    _leave(access, numbers)
    return reduced


def _leave(access: Any, numbers: Sequence[int]) -> None:
    """Another one has reduced these, or will: the next `synchronize` does not."""
    for reducer in access.reducers:
        reducer.settle_alone(numbers)
