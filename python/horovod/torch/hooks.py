"""Which optimizer a parameter hands its gradient to, where several have it: the last one that was made or has stepped.

Only one of them may reduce a gradient, and all ranks must agree which, although on some ranks an optimizer that nobody
uses any more may be gone, and on others wait for the garbage collector. So names belong to parameters
(`optimizer_names`): it does not matter to the other ranks which of the optimizers submits. Used by `reducer`.
"""

from __future__ import annotations

import weakref
from typing import Any, Callable

import torch
from torch.utils.weak import WeakTensorKeyDictionary

__all__ = ["Ledger", "put_hook", "taker_of"]


class Ledger:
    """What the other optimizers of a parameter must know of one that reduces its gradients. Lives longer than that.

    Args:
        access: the optimizer's access to its gradients.
        terms: how it reduces: equal for those that may reduce in each other's place.

    Attributes:
        reductions: how many times it has reduced the gradients.
        has_lost: a parameter hands its gradient to another one now.
    """

    def __init__(self, access: Any, terms: tuple[Any, ...]) -> None:
        self.access = weakref.ref(access)
        self.terms = terms
        self.reductions = 0
        self.has_lost = False


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


def taker_of(parameter: torch.Tensor) -> Ledger:
    """Of the optimizer whose hook was put last."""
    found: Ledger = _taker[parameter][1]
    return found
