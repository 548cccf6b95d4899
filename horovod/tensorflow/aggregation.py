"""Adding up gradients locally for several backward passes before they are reduced once: less to send.

`LocalGradientAggregationHelper` for graphs of TensorFlow 1, `LocalGradientAggregationHelperEager` for eager mode and
`tf.function`. Both count passes in a variable, so that the decision is made when the step runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable, Optional

import tensorflow as tf

from horovod._core.errors import InvalidArgumentError
from horovod._core.gradients import check_passes
from horovod._core.process_sets import ProcessSet, global_process_set

__all__ = ["LocalGradientAggregationHelper", "LocalGradientAggregationHelperEager", "graph_variable"]

# (gradients, variables) -> reduced gradients
Reduce = Callable[[Sequence[Any], Sequence[Any]], list[Any]]


class _Aggregation:
    """What both have in common."""

    def __init__(
        self,
        backward_passes_per_step: int,
        allreduce_func: Reduce,
        sparse_as_dense: bool,
        average_aggregated_gradients: bool,
        process_set: ProcessSet = global_process_set,
        scale_local_gradients: bool = True,
    ) -> None:
        check_passes(backward_passes_per_step)
        self.backward_passes_per_step = backward_passes_per_step
        self.allreduce_grads = allreduce_func
        self.sparse_as_dense = sparse_as_dense
        self.average_aggregated_gradients = average_aggregated_gradients
        self.process_set = process_set
        self.scale_local_gradients = scale_local_gradients
        self.counter: Any = None
        self._sums: list[Any] = []

    def _dense(self, gradient: Any) -> Any:
        if not isinstance(gradient, tf.IndexedSlices):
            return gradient
        if not self.sparse_as_dense:
            raise InvalidArgumentError(
                "IndexedSlices are not supported with backward_passes_per_step > 1 unless sparse_as_dense=True."
            )
        return tf.convert_to_tensor(gradient)

    def _average(self, gradients: list[Any]) -> list[Any]:
        if not self.average_aggregated_gradients:
            return gradients
        return [g if g is None else g / tf.cast(self.backward_passes_per_step, g.dtype) for g in gradients]

    def _make(self, gradients: Sequence[Any], make: Callable[..., Any]) -> None:
        """The counter, and a sum for each gradient that is there for the first time."""
        if self.counter is None:
            self.counter = make([], tf.int64, "aggregation_counter")
            self._sums = [None] * len(gradients)
        for i, gradient in enumerate(gradients):
            if gradient is not None and self._sums[i] is None:
                self._sums[i] = make(gradient.shape, gradient.dtype, f"aggregation_{i}")


def graph_variable(shape: Any, dtype: Any, name: str) -> Any:
    """One of Horovod's own in a graph of TensorFlow 1: initialised, saved and broadcast with all others. Of zeros."""
    # A function, because zeros made here would wait for what the training step waits for, batches among it.
    return tf.compat.v1.Variable(
        lambda: tf.zeros(shape, dtype), trainable=False, name=name, use_resource=True,
        collections=[tf.compat.v1.GraphKeys.GLOBAL_VARIABLES],
    )  # fmt: skip


class LocalGradientAggregationHelper(_Aggregation):
    """For graphs of TensorFlow 1.

    Args:
        backward_passes_per_step: passes whose gradients are added up.
        allreduce_func: (gradients, variables) -> reduced gradients.
        sparse_as_dense: make IndexedSlices dense.
        average_aggregated_gradients: divide the sums by the number of passes.
        rank, optimizer_type: accepted, not needed.
        process_set, scale_local_gradients: of the reduction.
        name: begins the variables' names.

    Raises:
        InvalidArgumentError: no positive number of passes; or IndexedSlices without `sparse_as_dense`.
    """

    def __init__(
        self,
        backward_passes_per_step: int,
        allreduce_func: Reduce,
        sparse_as_dense: bool,
        average_aggregated_gradients: bool,
        rank: int,
        optimizer_type: Any,
        process_set: ProcessSet = global_process_set,
        scale_local_gradients: bool = True,
        name: str = "",
    ) -> None:
        super().__init__(
            backward_passes_per_step, allreduce_func, sparse_as_dense, average_aggregated_gradients, process_set,
            scale_local_gradients,
        )  # fmt: skip
        self._name = name

    def _variable(self, shape: Any, dtype: Any, name: str) -> Any:
        with tf.compat.v1.variable_scope(self._name or "horovod", reuse=False, auxiliary_name_scope=False):
            return graph_variable(shape, dtype, f"{self._name}{name}")

    def compute_gradients(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """Adds this pass's gradients up; in the last pass the sums are reduced. Returns what to apply then: in the
        passes before, the sums so far. Collective in the last pass."""
        dense = [self._dense(g) for g in gradients]
        self._make(dense, self._variable)
        first = tf.equal(self.counter, 0)
        with tf.control_dependencies([first]):
            counted = self.counter.assign((self.counter + 1) % self.backward_passes_per_step)
        present = [i for i, g in enumerate(dense) if g is not None]
        added = []
        for i in present:
            before = tf.where(first, tf.zeros_like(dense[i]), self._sums[i].read_value())
            added.append(self._sums[i].assign(before + dense[i]))
        own = [variables[i] for i in present]
        reduced = tf.cond(
            tf.equal(counted, 0),
            lambda: self._average(self.allreduce_grads([tf.identity(g) for g in added], own)),
            lambda: [tf.identity(g) for g in added],
        )
        results: list[Any] = [None] * len(dense)
        for i, gradient in zip(present, reduced if isinstance(reduced, (list, tuple)) else [reduced]):
            results[i] = gradient
        self._counted = counted
        return results

    def apply_gradients(self, apply_grads_closure: Callable[[], Any], *args: Any, **kwargs: Any) -> Any:
        """Runs the closure in the last pass only."""
        return tf.cond(
            tf.equal(self._counted, 0),
            lambda: tf.group(apply_grads_closure()),
            lambda: tf.no_op(),
        )


class LocalGradientAggregationHelperEager(_Aggregation):
    """For eager mode and `tf.function`; see `LocalGradientAggregationHelper` for the arguments.

    A gradient that is None in some passes counts as zero there. A function that was traced while it had always been
    None leaves it out for ever.
    """

    def _variable(self, shape: Any, dtype: Any, name: str) -> Any:
        with tf.init_scope():
            return tf.Variable(tf.zeros(shape, dtype), trainable=False, name=name)

    def compute_gradients(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """Adds this pass's gradients up; in the last pass returns them reduced, before that the sums so far. Collective
        in the last pass."""
        dense = [self._dense(g) for g in gradients]
        self._make(dense, self._variable)
        present = [i for i, total in enumerate(self._sums) if total is not None]
        for i in present:
            if dense[i] is not None:
                self._sums[i].assign_add(dense[i])
        self.counter.assign((self.counter + 1) % self.backward_passes_per_step)
        sums = [tf.convert_to_tensor(self._sums[i]) for i in present]
        own = [variables[i] for i in present]

        def reduce() -> list[Any]:
            # Before the reduction, as the counter: one that fails leaves nothing to the steps that follow.
            cleared = [self._sums[i].assign(tf.zeros_like(self._sums[i]), read_value=False) for i in present]
            with tf.control_dependencies(cleared):
                taken = [tf.identity(value) for value in sums]
            return self._average(self.allreduce_grads(taken, own))

        reduced = tf.cond(tf.equal(self.counter, 0), reduce, lambda: [tf.identity(value) for value in sums])
        results: list[Any] = [None] * len(dense)
        for i, gradient in zip(present, reduced if isinstance(reduced, (list, tuple)) else [reduced]):
            results[i] = gradient
        return results

    def apply_gradients(
        self, apply_grads_closure: Callable[[], Any], optimizer: Optional[Any] = None, *args: Any, **kwargs: Any
    ) -> Any:
        """Runs the closure if the gradients have just been reduced."""
        return tf.cond(tf.equal(self.counter, 0), lambda: _done(apply_grads_closure()), lambda: tf.constant(False))


def _done(_: Any) -> Any:
    return tf.constant(True)
