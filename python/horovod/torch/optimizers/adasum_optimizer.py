"""`DistributedOptimizer(op=hvd.Adasum)`: combines the ranks' steps instead of their gradients.

Every rank steps with its own gradients; the differences that the step makes to the parameters are combined with Adasum
and added to the values before the step. Used through `optimizer.DistributedOptimizer`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Callable, Optional

import torch

from horovod._core.training.reduction_options import ReductionOptions
from horovod.torch.gradients.layout import dense_view
from horovod.torch.gradients.optimizer_names import Groups, OptimizerNames
from horovod.torch.gradients.parameter_check import after_step
from horovod.torch.gradients.reducer import GradientAccess
from horovod.torch.graphs import outside_graphs
from horovod.torch.optimizers.distributed_methods import DistributedMethods

__all__ = ["AdasumMethods"]


class _DeltaAccess(GradientAccess):
    """Reads and writes parameter differences in the place of gradients. Its hooks only count the backward passes."""

    def __init__(self, names: OptimizerNames, options: ReductionOptions, groups: Groups, sparse_as_dense: bool) -> None:
        super().__init__(names, options, groups, sparse_as_dense)
        self._homes_wanted = False
        self._deltas: dict[int, torch.Tensor] = {}
        self._counts: dict[int, int] = {}

    def values(self) -> dict[int, torch.Tensor]:
        """Copies of the parameters' values, by number."""
        return {number: self.names.parameters[number].detach().clone() for number in self.reducer_of}

    def exchange(self, before: dict[int, torch.Tensor]) -> None:
        """Replaces what the step did to the parameters by the ranks' combination of it. Collective.

        Args:
            before: `values` before the step.
        """
        parameters = self.names.parameters
        self._deltas = {number: parameters[number].detach() - old for number, old in before.items()}
        self._counts.clear()
        for reducer in self.reducers:
            reducer.synchronize()
        with torch.no_grad():
            for number, delta in self._deltas.items():
                parameters[number].copy_(before[number] + delta)
        self._deltas = {}

    def settle(self) -> None:
        super().settle()
        self._counts.clear()

    def forget_settled(self) -> None:
        super().forget_settled()
        self._counts.clear()  # `zero_grad` has discarded the step, which nothing of ours had begun

    def ends_pass(self) -> bool:
        super().ends_pass()
        return False  # gradients stay here

    def send_again(self, numbers: list[int], wait_s: float = 0.0) -> int:
        return 0  # as above

    def ready(self, number: int) -> None:
        count = self._counts.get(number, 0) + 1
        if count > self.passes:
            raise AssertionError(
                f"The gradient of '{self.names.name(number)}' was computed more than backward_passes_per_step "
                f"({self.passes}) times before "
                "step(). Call step() after that many backward passes, or raise backward_passes_per_step."
            )
        self._counts[number] = count

    def _read(self, number: int) -> torch.Tensor:
        flat = dense_view(self._deltas[number])
        if flat is None:
            flat = self._deltas[number] = self._deltas[number].contiguous()
        return flat

    def _write(self, number: int, reduced: torch.Tensor) -> None:
        self._read(number).copy_(reduced)


class AdasumMethods(DistributedMethods):
    """The methods that differ from those of an optimizer of combined gradients."""

    _access: _DeltaAccess
    _access_kind = _DeltaAccess

    def synchronize(self) -> None:
        """Does nothing: the ranks' steps are combined within `step`."""

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Not supported with Adasum, whose steps are combined after the local one.

        Raises:
            AssertionError: always.
        """
        raise AssertionError(
            "skip_synchronize() does not work with op=hvd.Adasum, which combines steps instead of gradients."
        )
        yield

    @outside_graphs
    def step(self, closure: Optional[Callable[[], Any]] = None, *args: Any, **kwargs: Any) -> Any:
        """Steps with this rank's gradients, then combines the ranks' steps with Adasum.

        Collective.

        Args:
            closure: computes the loss and the gradients.

        Raises:
            HorovodInternalError: a rank died, or the engine is shutting down.
        """
        access = self._access
        if not access.active:
            return self._plain_step(closure, *args, **kwargs)
        self._take_up_new()
        access.attach()
        before = access.values()
        result = self._plain_step(closure, *args, **kwargs)
        access.exchange(before)
        after_step(self)
        return result

    step.hooked = True  # type: ignore[attr-defined]
