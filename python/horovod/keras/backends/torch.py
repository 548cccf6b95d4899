"""Reducing gradients when Keras runs on PyTorch: in place, all together unless groups are asked for."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Callable, Optional

import torch

from horovod._core.training.default_check import is_unasked
from horovod._core.training.default_findings import Form
from horovod._core.training.elastic.snapshot import settle
from horovod._core.training.reduction_check import Reduced, Value, check_of
from horovod._core.training.reduction_options import count_pass
from horovod.keras.reducer import REMEDY, ListReducer, Reducer, ReductionSettings
from horovod.torch.collectives.operators import collectives
from horovod.torch.gradients.default_check import sums
from horovod.torch.gradients.layout import apart
from horovod.torch.graphs import outside_graphs

__all__ = ["TorchReducer"]


class TorchReducer(Reducer):
    """See `Reducer`."""

    _reducer: Optional[ListReducer] = None
    _reduced: Sequence[Any] = ()

    def __init__(self, settings: ReductionSettings) -> None:
        super().__init__(settings)
        self._begun: dict[tuple[int, ...], _Begun] = {}  # by the identities of the variables

    def reset(self) -> None:
        self._begun.clear()

    def adopt(self, optimizer: Any) -> None:
        self._optimizer = optimizer
        # torch.compile must not trace into the engine, and looks for methods in the instance first.
        disable: Any = torch.compiler.disable
        optimizer.__dict__["apply"] = disable(optimizer.apply)

    # For callers that bypass `apply`.
    @outside_graphs
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
        dense = apart([_dense(results[index]) for index in shared])
        self._compare(dense, own)
        for index, reduced in zip(shared, self._reducer(dense)):
            results[index] = reduced
        return results

    def _compare(self, gradients: Sequence[Any], variables: Sequence[Any]) -> None:
        """Whether all ranks reduce the same, where nobody has asked.

        Raises:
            MismatchError: other numbers or shapes on other ranks.
        """
        scope = self.settings.scope
        if not is_unasked(self.settings.options.process_set):
            return
        check = check_of("keras", scope)
        if not check.is_over:
            check.compare(_reduced(gradients, variables))

    @outside_graphs
    def run(self, gradients: Sequence[Any], variables: Sequence[Any], apply: Callable[[list[Any]], None]) -> None:
        passes = self.settings.options.backward_passes_per_step
        if passes == 1:
            reduced = self.reduce(gradients, variables)
            settle()  # what a commit still copies would get new memory
            apply(reduced)
            return
        key = tuple(map(id, variables))
        begun = self._begun.setdefault(key, _Begun(list(variables), [None] * len(gradients)))
        begun.add(gradients)
        if begun.passes < passes:
            count_pass(self._optimizer)
            return
        del self._begun[key]
        sums = begun.sums
        if self.settings.average_passes:
            sums = [None if total is None else total / passes for total in sums]
        reduced = self.reduce(sums, variables)
        settle()
        apply(reduced)


@dataclass
class _Begun:
    """A step of several passes whose last is still to come.

    Args:
        variables: held, so that no other gets the identity of one of them.
        sums: of their gradients; None: there was none yet.
        passes: how many have been added up.
    """

    variables: list[Any]
    sums: list[Any]
    passes: int = 0

    def add(self, gradients: Sequence[Any]) -> None:
        """One more pass."""
        self.passes += 1
        for index, gradient in enumerate(gradients):
            if gradient is None:
                continue
            if self.sums[index] is None:
                # A copy: Keras sets gradients to zero or None before the next pass.
                self.sums[index] = gradient.detach().clone()
            else:
                self.sums[index].add_(gradient)


def _reduced(gradients: Sequence[Any], variables: Sequence[Any]) -> Reduced:
    forms = [
        Form(f"{index}.{variable.name}", f"{str(gradient.dtype)[6:]} {list(gradient.shape)}")
        for index, (gradient, variable) in enumerate(zip(gradients, variables))
    ]
    valued = [variable for variable in variables if variable.value.is_floating_point()]

    def measured() -> list[Value]:
        return [Value(variable.value.element_size(), *sums(variable.value)) for variable in valued]

    return Reduced(forms, [weakref.ref(v) for v in valued], [v.path for v in valued], measured, REMEDY)


def _dense(gradient: Any) -> Any:
    """A gradient that can be reduced in place. Keras' optimizers take dense ones only."""
    if gradient.layout is not torch.strided:
        gradient = gradient.to_dense()
    return gradient.detach().contiguous()
