"""Adding up gradients locally for several backward passes before they are reduced once: less to send.

`LocalGradientAggregationHelper` for graphs of TensorFlow 1, `LocalGradientAggregationHelperEager` for eager mode and
`tf.function`. Both count passes in a variable, so that the decision is made when the step runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Callable, Optional

import tensorflow as tf

from horovod._core.errors import InvalidArgumentError
from horovod._core.life.process_sets import ProcessSet, global_process_set
from horovod._core.training.reduction_options import checked_passes, count_pass
from horovod.tensorflow.as_written import as_written
from horovod.tensorflow.gradients.reducer import divided, key_of

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
        self.backward_passes_per_step = checked_passes(backward_passes_per_step)
        self.allreduce_grads = allreduce_func
        self.sparse_as_dense = sparse_as_dense
        self.average_aggregated_gradients = average_aggregated_gradients
        self.process_set = process_set
        self.scale_local_gradients = scale_local_gradients
        self._steps: dict[tuple[int, ...], _Step] = {}  # by the keys of the variables
        self._last: Any = None  # of the steps: the one that gradients were computed for last
        self._local: dict[int, Any] = {}  # held, so that no other variable gets a key of theirs

    def register_local_var(self, var: Any) -> None:
        """The gradient of this variable is added up, but not reduced: every rank has its own values of it."""
        self._local[key_of(var)] = var

    def _reduced(self, sums: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """The sums of all passes, of all ranks where they are not local. Collective."""
        results = list(sums)
        shared = [i for i, variable in enumerate(variables) if key_of(variable) not in self._local]
        reduced = self.allreduce_grads([sums[i] for i in shared], [variables[i] for i in shared])
        for i, gradient in zip(shared, reduced):
            results[i] = gradient
        if self.scale_local_gradients:
            for i in set(range(len(results))).difference(shared):
                results[i] = divided(results[i], self.process_set)
        return self._average(results)

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

    def _step(self, gradients: Sequence[Any], variables: Sequence[Any], make: Callable[..., Any]) -> _Step:
        """The step of these variables, with a sum for each gradient that is there for the first time."""
        key = _key(variables)
        if key not in self._steps:
            self._steps[key] = _Step(list(variables), make([], tf.int64, "aggregation_counter"), [None] * len(key))
        step = self._last = self._steps[key]
        for i, gradient in enumerate(gradients):
            if gradient is not None and step.sums[i] is None:
                step.sums[i] = make(gradient.shape, gradient.dtype, f"aggregation_{i}")
        return step

    @as_written
    def apply_gradients(
        self, apply_grads_closure: Callable[[], Any], optimizer: Optional[Any] = None, *args: Any,
        variables: Optional[Sequence[Any]] = None, **kwargs: Any,
    ) -> Any:  # fmt: skip
        """Runs the closure in the last pass; in the passes before, only the `iterations` of a Keras optimizer advance.

        Args:
            apply_grads_closure: applies what `compute_gradients` returned.
            optimizer: whose `iterations` the closure makes advance by one, if it has any.
            variables: those given to `compute_gradients`; None, or others: those of its last call.
            *args, **kwargs: accepted, not needed.

        Returns:
            In a graph the operation; else True in the last pass, False before.
        """
        step = self._last if variables is None else self._steps.get(_key(variables), self._last)
        return self._in_the_last_pass(step, apply_grads_closure, lambda: count_pass(optimizer))

    def _in_the_last_pass(self, step: _Step, closure: Callable[[], Any], only_count: Callable[[], Any]) -> Any:
        raise NotImplementedError


@dataclass
class _Step:
    """The passes of one list of variables.

    Args:
        variables: held, so that no other gets a key of theirs.
        counter: how many passes have been added up.
        sums: of the gradients; None: there was none yet.
        counted: in a graph, the counter after the pass.
    """

    variables: list[Any]
    counter: Any
    sums: list[Any]
    counted: Any = None


def _key(variables: Sequence[Any]) -> tuple[int, ...]:
    return tuple(map(key_of, variables))


def graph_variable(shape: Any, dtype: Any, name: str) -> Any:
    """A variable of zeros in a graph of TensorFlow 1: initialised, saved and broadcast with all others."""
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

    @as_written
    def compute_gradients(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """Adds this pass's gradients up; in the last pass the sums are reduced. Returns what to apply then: in the
        passes before, the sums so far. Collective in the last pass."""
        dense = [self._dense(g) for g in gradients]
        step = self._step(dense, variables, self._variable)
        first = tf.equal(step.counter, 0)
        with tf.control_dependencies([first]):
            counted = step.counted = step.counter.assign((step.counter + 1) % self.backward_passes_per_step)
        present = [i for i, g in enumerate(dense) if g is not None]
        added = []
        for i in present:
            before = tf.where(first, tf.zeros_like(dense[i]), step.sums[i].read_value())
            added.append(step.sums[i].assign(before + dense[i]))
        own = [variables[i] for i in present]
        reduced = tf.cond(
            tf.equal(counted, 0),
            lambda: self._reduced([tf.identity(g) for g in added], own),
            lambda: [tf.identity(g) for g in added],
        )
        results: list[Any] = [None] * len(dense)
        for i, gradient in zip(present, reduced if isinstance(reduced, (list, tuple)) else [reduced]):
            results[i] = gradient
        return results

    def _in_the_last_pass(self, step: _Step, closure: Callable[[], Any], only_count: Callable[[], Any]) -> Any:
        def otherwise() -> Any:
            counted = only_count()
            return tf.no_op() if counted is None else tf.group(counted)

        return tf.cond(tf.equal(step.counted, 0), lambda: tf.group(closure()), otherwise)


class LocalGradientAggregationHelperEager(_Aggregation):
    """For eager mode and `tf.function`; see `LocalGradientAggregationHelper` for the arguments.

    A gradient that is None in some passes counts as zero there. A function that was traced while it had always been
    None leaves it out for ever.
    """

    def _variable(self, shape: Any, dtype: Any, name: str) -> Any:
        with tf.init_scope():
            return tf.Variable(tf.zeros(shape, dtype), trainable=False, name=name)

    @as_written
    def compute_gradients(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """Adds this pass's gradients up; in the last pass returns them reduced, before that the sums so far. Collective
        in the last pass."""
        dense = [self._dense(g) for g in gradients]
        step = self._step(dense, variables, self._variable)
        present = [i for i, total in enumerate(step.sums) if total is not None]
        for i in present:
            if dense[i] is not None:
                step.sums[i].assign_add(dense[i])
        step.counter.assign((step.counter + 1) % self.backward_passes_per_step)
        sums = [tf.convert_to_tensor(step.sums[i]) for i in present]
        own = [variables[i] for i in present]

        def reduce() -> list[Any]:
            # Before the reduction, as the counter: one that fails leaves nothing to the steps that follow.
            cleared = [step.sums[i].assign(tf.zeros_like(step.sums[i]), read_value=False) for i in present]
            with tf.control_dependencies(cleared):
                taken = [tf.identity(value) for value in sums]
            return self._reduced(taken, own)

        reduced = tf.cond(tf.equal(step.counter, 0), reduce, lambda: [tf.identity(value) for value in sums])
        results: list[Any] = [None] * len(dense)
        for i, gradient in zip(present, reduced if isinstance(reduced, (list, tuple)) else [reduced]):
            results[i] = gradient
        return results

    def _in_the_last_pass(self, step: _Step, closure: Callable[[], Any], only_count: Callable[[], Any]) -> Any:
        return tf.cond(tf.equal(step.counter, 0), lambda: _done(closure(), True), lambda: _done(only_count(), False))

    def reset(self) -> None:
        """Forgets the passes of steps that were begun: the next pass is the first of a step. Local; not in a graph."""
        for step in self._steps.values():
            for variable in (step.counter, *step.sums):
                if variable is not None:
                    variable.assign(tf.zeros_like(variable))


def _done(_: Any, applied: bool) -> Any:
    return tf.constant(applied)
