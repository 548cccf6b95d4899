"""`GatheredGradients`: gradients of a backward pass that are submitted together.

A small gradient is reduced in less time than it takes to interrupt the pass for it: to call the engine, and to give its
thread a core that the ranks compute on. So the hooks only note them, and they are submitted when they are many, or at
the end of the pass, where this thread waits for them anyway. Where no core is left for the engine's thread, large
gradients are noted too. When a rank submits does not matter to the other ranks. Used by `reducer`.
"""

from __future__ import annotations

from typing import Any, Final

import torch

from horovod._core.life.handles import BRIEF_S
from horovod._core.training.overlap import MOST_GATHERED_BYTES, SMALL_BYTES
from horovod.torch.versions import increment_versions

__all__ = ["NO_PASS", "GatheredGradients", "gathered_bytes", "send_again", "submit_gathered"]

NO_PASS: Final = -2

_UNLIMITED: Final = 1 << 62
# At the end of a pass, on top of `BRIEF_S`: a few times the cost of a copy. Not for long: where a rank has left a
# gradient out, the wait ends without it.
_S_PER_BYTE: Final = 0.25e-9
_MOST_PATIENCE_S: Final = 20e-3


def gathered_bytes(parameter: torch.Tensor) -> int:
    """The bytes of a parameter's gradient; 0: it is of a kind that is never gathered."""
    return parameter.nbytes if parameter.is_cpu and parameter.layout is torch.strided else 0


class GatheredGradients:
    """See the module.

    Attributes:
        of_pass: autograd's number of the pass whose gradients are noted here; NO_PASS: none are noted, as after
            an earlier pass has submitted gradients of the same step, for which a second submission waits.
        limit: gradients of fewer bytes are noted.

    Args:
        overlaps: large gradients are reduced during the pass.
    """

    def __init__(self, overlaps: bool) -> None:
        self.of_pass = NO_PASS
        self._numbers: list[int] = []
        self._bytes = 0
        self.set_overlaps(overlaps)

    def set_overlaps(self, overlaps: bool) -> None:
        """Sets whether large gradients are reduced during the pass, from the next one on."""
        self.limit = SMALL_BYTES if overlaps else _UNLIMITED
        self._most_bytes = MOST_GATHERED_BYTES if overlaps else _UNLIMITED

    @property
    def patience_s(self) -> float:
        """How many seconds to wait for what is noted, at the end of the pass."""
        return BRIEF_S + min(self._bytes * _S_PER_BYTE, _MOST_PATIENCE_S)

    def add(self, number: int, nbytes: int) -> bool:
        """Notes a gradient that has been accumulated. True: it is time to submit what is noted."""
        self._numbers.append(number)
        self._bytes += nbytes
        return self._bytes > self._most_bytes

    def take(self) -> list[int]:
        """Returns the numbers of the parameters whose gradients are noted, and clears the notes."""
        numbers, self._numbers = self._numbers, []
        self._bytes = 0
        return numbers


def submit_gathered(access: Any, waits: bool = False) -> None:
    """Submits the gradients of a pass that are noted.

    Args:
        access: see `horovod.torch.gradients.reducer.GradientAccess`; also below.
        waits: for a moment, until they are reduced.
    """
    wait_s = access.gathered.patience_s if waits else 0.0
    numbers = access.gathered.take()
    for number in numbers[access.send_again(numbers, wait_s) if numbers else 0 :]:
        if not access.send_again([number]):
            access.ready(number)


def send_again(access: Any, numbers: list[int], wait_s: float = 0.0) -> int:
    """The short way for gradients without homes that are contiguous, as their parameters, and like those before.

    Args:
        wait_s: seconds to wait, if all were submitted; if all are reduced by then, none is under way. 0: do not wait.

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
    try:
        landed = reducer.ready_again(numbers[: len(own)], own, started, wait_s if len(own) == len(numbers) else 0.0)
    finally:
        if not landed:
            sent = [(grad, tensor.data_ptr(), tensor, False) for grad, tensor in zip(given, own[: len(started)])]
            access.under_way.sent.update(zip(numbers, sent))
    if landed:
        increment_versions(given)  # the engine has written behind autograd's back
    return len(started)
