"""`UpstreamNames`: private attributes of upstream's optimizer that public programs use, with their meaning there.

| name | used by |
|---|---|
| `_parameter_names`, `_compression` | trainers that wrap an optimizer again |
| `_requires_update` | set to `set()` in training scripts, so that parameters without a gradient stay as they are |
| `_allreduce_grad_async` | pytorch-ignite, which knows a distributed optimizer by it |
| `_handles` | scripts that ask whether gradients are under way |
| `_allreduce_delay` | scripts that change how many passes are left for a parameter |

Mixed in by `distributed_methods`. Nothing else of this package uses them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from horovod._core.life import handles
from horovod._core.tensors.compression import Compressor
from horovod.torch.gradients.after_pass import AfterPass
from horovod.torch.gradients.optimizer_names import OptimizerNames
from horovod.torch.gradients.reducer import GradientAccess

__all__ = ["UpstreamNames"]


class UpstreamNames:
    """See the module's table."""

    _access: GradientAccess
    _names: OptimizerNames

    @property
    def _parameter_names(self) -> dict[torch.Tensor, str]:
        return {parameter: self._names.name(number) for number, parameter in enumerate(self._names.parameters)}

    @property
    def _compression(self) -> Compressor:
        return self._access.options.compression

    @property
    def _requires_update(self) -> set[torch.Tensor]:
        """The parameters that contribute zeros to a step in which they have no gradient on this rank. Setting it is
        collective in its effect: equal on all ranks."""
        reducer_of = self._access.reducer_of
        return {
            parameter
            for number, parameter in enumerate(self._names.parameters)
            if parameter.requires_grad and (number not in reducer_of or number in reducer_of[number].required)
        }

    @_requires_update.setter
    def _requires_update(self, parameters: Iterable[torch.Tensor]) -> None:
        for reducer in self._access.reducers:
            reducer.required = [*self._names.numbers_of(parameters)]

    @property
    def _handles(self) -> dict[torch.Tensor, tuple[int, Any]]:
        """The parameters whose gradients are under way, with a handle for `hvd.synchronize`, and nothing."""
        return {self._names.parameters[number]: (self._handle(number), None) for number in self._access.under_way.sent}

    def _handle(self, number: int) -> int:
        # Waiting for the gradient is what its stand-in does.
        under_way = self._access.under_way
        if number in under_way.sent and number not in under_way.stand_ins:
            under_way.stand_in(number, AfterPass(self._access))
        given = under_way.handles
        if number not in given:
            given[number] = handles.add(handles.done(self._names.parameters[number].grad))
        return given[number]

    def _allreduce_grad_async(self, p: torch.Tensor) -> tuple[int, Any]:
        """Starts the reduction of a gradient, unless it is under way. A handle, and nothing."""
        (number,) = self._names.numbers_of([p])
        reducer = self._access.reducer_of.get(number)  # None: a single rank, or a frozen parameter
        if reducer is not None:
            reducer.submit(number)
        return self._handle(number), None

    @property
    def _allreduce_delay(self) -> dict[torch.Tensor, int]:
        """How many more times each gradient is accumulated before it is reduced. May be set as a whole."""
        passes_left = ((number, reducer.left[number]) for number, reducer in self._access.reducer_of.items())
        return {self._names.parameters[number]: left for number, left in passes_left}

    @_allreduce_delay.setter
    def _allreduce_delay(self, left: Mapping[torch.Tensor, int]) -> None:
        for number, passes in zip(self._names.numbers_of(left), left.values()):
            self._access.reducer_of[number].left[number] = passes
