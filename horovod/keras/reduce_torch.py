"""Reducing gradients when Keras runs on PyTorch: in place, all together unless groups are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable, Optional

import torch

from horovod.keras.reduction import ListReducer, Reduction, ReductionSettings
from horovod.torch.library import collectives

__all__ = ["TorchReduction"]


class TorchReduction(Reduction):
    """See `Reduction`."""

    _reducer: Optional[ListReducer] = None
    _reduced: Sequence[Any] = ()
    _passes_done: int = 0

    def __init__(self, settings: ReductionSettings) -> None:
        super().__init__(settings)
        self._sums: list[Any] = []

    def adopt(self, optimizer: Any) -> None:
        # torch.compile looks for methods in the `__class__`, the user's own; before that, in the instance.
        disable: Any = torch.compiler.disable
        optimizer.__dict__["apply"] = disable(optimizer.apply)

    # torch.compile must not trace into the engine.
    @torch.compiler.disable  # type: ignore[untyped-decorator,unused-ignore]
    def reduce(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        results = list(gradients)
        if not self.takes_part:
            return results
        shared = self._divide_local(results, variables)
        if not shared:
            return results
        own = [variables[index] for index in shared]
        if self._reducer is None or list(map(id, own)) != list(map(id, self._reduced)):
            self._reducer, self._reduced = ListReducer(collectives, self.settings, own), own
        for index, reduced in zip(shared, self._reducer([_dense(results[index]) for index in shared])):
            results[index] = reduced
        return results

    @torch.compiler.disable  # type: ignore[untyped-decorator,unused-ignore]
    def run(self, gradients: Sequence[Any], variables: Sequence[Any], apply: Callable[[list[Any]], None]) -> None:
        passes = self.settings.options.backward_passes_per_step
        if passes == 1:
            apply(self.reduce(gradients, variables))
            return
        if self._passes_done == 0:
            self._sums = [None] * len(gradients)
        for index, gradient in enumerate(gradients):
            if gradient is None:
                continue
            if self._sums[index] is None:
                # A copy: Keras sets gradients to zero or None before the next pass.
                self._sums[index] = gradient.detach().clone()
            else:
                self._sums[index].add_(gradient)
        self._passes_done = (self._passes_done + 1) % passes
        if self._passes_done == 0:
            if self.settings.average_passes:
                self._sums = [None if total is None else total / passes for total in self._sums]
            sums, self._sums = self._sums, []
            apply(self.reduce(sums, variables))


def _dense(gradient: Any) -> Any:
    """A gradient that can be reduced in place. Keras' optimizers take dense ones only."""
    if gradient.layout is not torch.strided:
        gradient = gradient.to_dense()
    return gradient.detach().contiguous()
