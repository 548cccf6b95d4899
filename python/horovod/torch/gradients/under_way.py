"""`UnderWay`: the gradients of an optimizer between their submission and the end of their reduction.

It knows which tensor each parameter had, what stands in for it meanwhile (`pending`), and gives the parameters their
gradients back when they are reduced. It waits for nothing and submits nothing; `reducer` does.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, Optional

import torch

from horovod._core.life import handles
from horovod.torch.gradients.pending import (
    FRESH,
    GradientOwner,
    PendingGradient,
    pending_gradient,
    references_of,
    storage_of,
    uses_of,
)
from horovod.torch.gradients.resident import GradientHome
from horovod.torch.versions import increment_versions

__all__ = ["UnderWay"]

_BESIDES: Final = FRESH[1] - 1  # uses of a memory that are no tensors


class UnderWay:
    """See the module.

    Args:
        parameters: of the optimizer, by number.
        homes: where gradients live in shared memory, by number.

    Attributes:
        sent: by number: the tensor that the parameter had, its address, and a tensor of our own, of the same strides,
            that the result is going to be in (None: it will be another one), and whether that is a copy.
        dense_forms: of sparse gradients that are reduced as dense ones, by number.
        sparse_dims: how many dimensions of a parameter's last gradient were sparse, by number.
        handles: that the program has been given, by number.
        stand_ins: tensors in the place of gradients under way, or that this rank has left out, by number.
    """

    def __init__(self, parameters: Sequence[torch.Tensor], homes: Mapping[int, GradientHome]) -> None:
        self._parameters = parameters
        self._homes = homes
        self.sent: dict[int, tuple[torch.Tensor, int, Optional[torch.Tensor], bool]] = {}
        self.dense_forms: dict[int, torch.Tensor] = {}
        self.sparse_dims: dict[int, int] = {}
        self.stand_ins: dict[int, PendingGradient] = {}
        self.handles: dict[int, int] = {}

    # ---- the end

    def deliver(self, numbers: Optional[Collection[int]] = None) -> None:
        """Called when the reduction of gradients has succeeded: completes those of which a copy was submitted, and
        takes stand-ins away. A tensor that the program has put in the place of a gradient is left alone.

        Args:
            numbers: of the parameters; None: all.
        """
        if not self.sent and not self.stand_ins:
            return
        for number in _chosen(self.dense_forms, numbers):
            self.give(number, self.dense_forms[number].to_sparse(self.sparse_dims[number]))
        self._take_away(numbers)
        sent = self.sent if numbers is None else {number: self.sent[number] for number in _chosen(self.sent, numbers)}
        parameters = self._parameters
        written: list[torch.Tensor] = []
        for number, (given, address, own, is_copy) in sent.items():
            if own is not None and parameters[number].grad is given and given.data_ptr() == address:
                written.append(given)
                if is_copy:
                    given.detach().copy_(own)
        self.forget(numbers)
        if written:
            increment_versions(written)  # the engine has written behind autograd's back

    def give(self, number: int, reduced: torch.Tensor) -> None:
        """Stores a reduced sparse gradient in the tensor that was submitted: the program may hold it elsewhere too."""
        if number in self.sent:
            self.sent[number][0].data = reduced

    def forget(self, numbers: Optional[Collection[int]] = None) -> None:
        """The reduction of all, or of some, has ended, well or not; after a failure the gradients hold anything."""
        self._take_away(numbers)
        for number in _chosen(self.handles, numbers) if self.handles else ():
            handles.drop(self.handles.pop(number))
        if numbers is None:
            self.dense_forms.clear()
            self.sent.clear()
            return
        for number in numbers:
            self.dense_forms.pop(number, None)
            self.sent.pop(number, None)

    # ---- stand-ins

    def stand_in(self, number: int, owner: GradientOwner) -> None:
        """Lets a tensor that asks `owner` to wait, when it is used, take the place of a gradient under way."""
        given = self.sent[number][0]
        if self._parameters[number].grad is given:
            self.put_stand_in(number, given, owner)

    def put_stand_in(self, number: int, grad: torch.Tensor, owner: GradientOwner) -> None:
        """Lets it take the place of `grad`, or of a gradient that is missing and will be `grad`."""
        made = pending_gradient(grad, owner, number)
        self.stand_ins[number] = self._parameters[number].grad = made

    def take_away(self, number: int) -> torch.Tensor:
        """Takes a stand-in away, unless the program has done so. Returns the gradient that it stood for."""
        stand_in = self.stand_ins.pop(number)
        parameter = self._parameters[number]
        if parameter.grad is stand_in:
            parameter.grad = stand_in.given
        return stand_in.given

    def _take_away(self, numbers: Optional[Collection[int]]) -> None:
        if not self.stand_ins:
            return
        for number in _chosen(self.stand_ins, numbers):
            self.take_away(number)

    # ---- who else looks

    def is_any_held(self) -> bool:
        """True if the program could look at a gradient under way without asking the parameter for it."""
        # By storage: parameters that the program joins with `torch.cat` have their gradients in one.
        ours: dict[int, int] = {}
        for number, sent in self.sent.items():
            references, tensors = self._our_uses(number)
            if number not in self.stand_ins and references_of(sent) > references:
                return True
            storage = storage_of(sent)
            ours[storage] = ours.get(storage, _BESIDES) + tensors
        return any(uses_of(storage) > uses for storage, uses in ours.items())

    def _our_uses(self, number: int) -> tuple[int, int]:
        """The references to a gradient under way, and the tensors in its memory, that the parameter and we have."""
        given, _, own, is_copy = self.sent[number]
        home = self._homes.get(number)
        if home is not None and given is home.view:
            references, tensors = FRESH[0] + 1, home.uses - _BESIDES
        else:
            # Of our own; one in the order of memory has a base, which is another.
            views = 0 if is_copy or own is None else 1 if own.is_contiguous() else 3
            references, tensors = FRESH[0], 1 + views
        return references, tensors + (number in self.stand_ins)


def _chosen(table: Mapping[int, Any], numbers: Optional[Collection[int]]) -> list[int]:
    return list(table) if numbers is None else [number for number in numbers if number in table]
