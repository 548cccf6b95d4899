"""`GatheredGradients`: the small gradients of a backward pass, which are submitted together.

A small gradient is reduced in less time than it takes to interrupt the pass for it: to call the engine, and to give its
thread a core that the ranks compute on. So the hooks only note them, and they are submitted when they are many, or at
the end of the pass, where this thread waits for them anyway. When a rank submits does not matter to the other ranks.
Used by `reducer`.
"""

from __future__ import annotations

from typing import Any, Final

import torch

from horovod.torch.versions import increment_versions

__all__ = ["NO_PASS", "GatheredGradients", "is_small", "send_again", "submit_gathered"]

NO_PASS: Final = -2

_SMALL_BYTES: Final = 64 << 10
# More than these are submitted before the pass ends, to be reduced beside it.
_MOST_BYTES: Final = 1 << 20


def is_small(parameter: torch.Tensor) -> bool:
    """True if a parameter's gradient is worth no call of its own."""
    return parameter.is_cpu and parameter.layout is torch.strided and parameter.nbytes < _SMALL_BYTES


class GatheredGradients:
    """See the module.

    Attributes:
        of_pass: autograd's number of the pass whose small gradients are noted here; NO_PASS: none are noted, as after
            an earlier pass has submitted gradients of the same step, for which a second submission waits.
    """

    def __init__(self) -> None:
        self.of_pass = NO_PASS
        self._numbers: list[int] = []
        self._bytes = 0

    def add(self, number: int, nbytes: int) -> bool:
        """Notes a gradient that has been accumulated. True: it is time to submit what is noted."""
        self._numbers.append(number)
        self._bytes += nbytes
        return self._bytes > _MOST_BYTES

    def take(self) -> list[int]:
        """The numbers of the parameters whose gradients are noted; they are no more."""
        numbers, self._numbers = self._numbers, []
        self._bytes = 0
        return numbers


def submit_gathered(access: Any, waits: bool = False) -> None:
    """Submits the small gradients of a pass that have not been submitted.

    Args:
        access: see `horovod.torch.gradients.reducer.GradientAccess`; also below.
        waits: for a moment, until they are reduced.
    """
    numbers = access.gathered.take()
    for number in numbers[access.send_again(numbers, waits) if numbers else 0 :]:
        if not access.send_again([number]):
            access.ready(number)


def send_again(access: Any, numbers: list[int], waits: bool = False) -> int:
    """The short way for gradients without homes that are contiguous, as their parameters, and like those before.

    Args:
        waits: for a moment, if all of them have been submitted; what has been reduced then is under way no more.

    Returns:
        How many have been submitted: up to the first of another kind.
    """
    parameters, reducers = access.parameters, access.reducer_of
    reducer = reducers[numbers[0]]
    given: list[torch.Tensor] = []
    own: list[torch.Tensor] = []  # keep the memory, whatever becomes of the gradients meanwhile
    for number in numbers:
        parameter = parameters[number]
        grad = parameter.grad
        if grad is None or not parameter.is_contiguous() or reducers[number] is not reducer:
            break
        given.append(grad)
        own.append(grad.data)
    started: list[Any] = []
    landed = False
    waits = waits and len(own) == len(numbers)
    try:
        landed = reducer.ready_again(numbers[: len(own)], own, started, waits)
    finally:
        if not landed:
            sent = [(grad, tensor.data_ptr(), tensor, False) for grad, tensor in zip(given, own[: len(started)])]
            access.under_way.sent.update(zip(numbers, sent))
    if landed:
        increment_versions(given)  # the engine has written behind autograd's back
    return len(started)
