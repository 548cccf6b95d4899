"""Reducing gradients when Keras runs on TensorFlow: `horovod.tensorflow`'s operators, eager or in the traced step."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Callable, Optional

import tensorflow as tf

from horovod._core.errors import InvalidArgumentError, UnsupportedError
from horovod.keras.reducer import REMEDY, Reducer, ReductionSettings
from horovod.tensorflow.collectives import xla
from horovod.tensorflow.gradients import reduction_notes
from horovod.tensorflow.gradients.aggregation import LocalGradientAggregationHelperEager
from horovod.tensorflow.gradients.reducer import GradientReduction, key_of

__all__ = ["TensorFlowReducer"]


class TensorFlowReducer(Reducer):
    """See `Reducer`. Several passes per step are counted in variables, so that the decision is made when the traced
    step runs.

    What a distributed tape has reduced is not added up again. An average is taken again: of equal values it changes
    nothing, and so nothing that could be wrong, or differ between the ranks, decides whether they reduce."""

    def __init__(self, settings: ReductionSettings) -> None:
        super().__init__(settings)
        options = settings.options
        self._reduction = GradientReduction(
            options, *settings.devices, settings.sparse_as_dense, settings.groups, settings.scale_local, REMEDY
        )
        # The variables whose gradients have been reduced, in the pass under way.
        self._done: set[int] = set()
        # In the optimizer's own `minimize`: those computed there, which need no note.
        self._minimized: Optional[set[int]] = None
        self._optimizer: Any = None
        self._in_replaced = False  # the user's `_allreduce` is running
        self._passes: Optional[LocalGradientAggregationHelperEager] = None
        if options.backward_passes_per_step > 1:
            if not tf.compat.v1.executing_eagerly_outside_functions():
                raise UnsupportedError(
                    "backward_passes_per_step > 1 is not supported for Keras optimizers in graphs of TensorFlow 1. Use "
                    "eager execution, or an optimizer of tf.compat.v1.train."
                )
            self._passes = LocalGradientAggregationHelperEager(
                options.backward_passes_per_step, self._reduce_rest, settings.sparse_as_dense, settings.average_passes,
                options.process_set, settings.scale_local,
            )  # fmt: skip

    def adopt(self, optimizer: Any) -> None:
        self._optimizer = optimizer
        reduction_notes.forget_eager()

    def reset(self) -> None:
        if self._passes is not None:
            self._passes.reset()

    def reduce(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        self._look(gradients, variables)
        return self._reduce_rest(gradients, variables)

    def allreduce(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        # What has been reduced already has been looked up before the user's own function was called.
        return (self._reduce_rest if self._in_replaced else self.reduce)(gradients, variables)

    @property
    def passes(self) -> Optional[LocalGradientAggregationHelperEager]:
        """Adds up the gradients of several passes; None: each pass is a step."""
        return self._passes

    def compute(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """Reduces and notes it, for an `apply` that follows; with several passes per step, adds up, and reduces in the
        last of them. Collective, as `run`."""
        self._look(gradients, variables, and_own=False)
        gather = self._reduce_rest if self._passes is None else self._passes.compute_gradients
        results = gather(gradients, variables)
        reduction_notes.note(results, variables, self)
        if self._minimized is not None:
            self._minimized = {key_of(variable) for variable in variables}
        return results

    @contextlib.contextmanager
    def minimizing(self) -> Iterator[None]:
        """In the body `run` gets what `compute` has returned, and does not reduce that."""
        self._minimized = set()
        try:
            yield
        finally:
            self._minimized = None

    def run(self, gradients: Sequence[Any], variables: Sequence[Any], apply: Callable[[list[Any]], Any]) -> Any:
        computed = self._look(gradients, variables)
        if self._passes is None:
            return apply(self._reduce_rest(gradients, variables))
        _refuse_xla()
        if computed:
            return self._in_the_last_pass(lambda: apply(self._reduce_rest(gradients, variables)), variables)
        summed = self._passes.compute_gradients(gradients, variables)
        return self._in_the_last_pass(lambda: apply(summed), variables)

    def run_reduced(self, gradients: Sequence[Any], variables: Sequence[Any], apply: Callable[[list[Any]], Any]) -> Any:
        """As `run`, for gradients that the caller says are reduced. Local."""
        computed = self._look(gradients, variables)
        if self._passes is None or not computed:
            return apply(list(gradients))
        return self._in_the_last_pass(lambda: apply(list(gradients)), variables)

    def _in_the_last_pass(self, closure: Callable[[], Any], variables: Sequence[Any]) -> Any:
        assert self._passes is not None
        return self._passes.apply_gradients(closure, self._optimizer, variables=variables)

    def is_local(self, variable: Any) -> bool:
        """True if the variable's gradient is not reduced."""
        return key_of(variable) in {key_of(local) for local in self.local_variables()}

    def _look(self, gradients: Sequence[Any], variables: Sequence[Any], and_own: bool = True) -> bool:
        """Finds out what has been reduced and must not be again; True if `compute` has reduced any. Its own notes are
        of an earlier step when it begins the next."""
        by = reduction_notes.take(gradients, variables)
        not_to_count = (None,) if and_own else (None, self)
        noted = [(variable, one) for variable, one in zip(variables, by) if one not in not_to_count]
        if self.settings.options.row.divides:
            noted = [(v, one) for v, one in noted if self.is_local(v) or one.is_local(v)]
        minimized = self._minimized or set()
        self._done = {key_of(variable) for variable, _ in noted} | minimized
        return bool(minimized) or any(one is self for one in by)

    def _reduce_rest(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        # The program may have replaced it with a function of its own.
        replaced = getattr(self._optimizer, "__dict__", {}).get("_allreduce")
        if replaced is not None and not self._in_replaced:
            self._in_replaced = True
            try:
                return list(replaced(list(gradients), list(variables)))
            finally:
                self._in_replaced = False
        results = list(gradients)
        rest = [i for i, variable in enumerate(variables) if key_of(variable) not in self._done]
        if not rest:
            return results
        _refuse_xla()
        for variable in self.local_variables():
            self._reduction.register_local(variable)
        chosen = [gradients[i] for i in rest], [variables[i] for i in rest]
        # Numbered: layers may be numbered differently on a rank that has made more of them.
        for i, gradient in zip(rest, self._reduction.reduce(*chosen, self.settings.scope, numbered=True)):
            results[i] = gradient
        return results


def _refuse_xla() -> None:
    """Refuses XLA with a message that users understand; XLA's own would not be understood."""
    if xla.compiling() and xla.holds_no_collectives():
        raise InvalidArgumentError(
            "The training step is compiled with XLA for an accelerator, where Horovod's collectives cannot run. Use "
            "model.compile(..., jit_compile=False), or add hvd.callbacks.BroadcastGlobalVariablesCallback(0) to "
            "model.fit(), which turns jit_compile off."
        )
