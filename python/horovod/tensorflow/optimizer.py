"""`DistributedOptimizer` of `horovod.tensorflow`: wraps optimizers of TensorFlow 1, and hands Keras optimizers to the
Keras wrapper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

import tensorflow as tf

from horovod._core.errors import InvalidArgumentError
from horovod._core.life.process_sets import ProcessSet, global_process_set
from horovod._core.operations.reduce_ops import Average, meant
from horovod._core.tensors.compression import Compressor
from horovod._core.training.groups import chosen_groups
from horovod._core.training.reduction_options import ReductionOptions
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.gradients.aggregation import LocalGradientAggregationHelper, graph_variable
from horovod.tensorflow.gradients.reducer import GradientReduction, Groups

__all__ = ["DistributedOptimizer"]

_LegacyOptimizer: Any = tf.compat.v1.train.Optimizer


def DistributedOptimizer(  # noqa: N802
    optimizer: Any,
    name: Optional[str] = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Compressor = Compression.none,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Groups = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Wraps an optimizer so that it applies the gradients of all ranks. Local; computing gradients is collective.

    Args:
        optimizer: a `tf.compat.v1.train.Optimizer` or a Keras optimizer.
        name, use_locking: of the optimizer made.
        device_dense, device_sparse: devices of the operators.
        compression: hvd.Compression.none, fp16 or bf16.
        sparse_as_dense: make IndexedSlices dense first.
        backward_passes_per_step: gradients are added up locally this many times before they are reduced; with
            op=hvd.Adasum this many local steps are combined as one.
        op: hvd.Average, Sum; hvd.Adasum for optimizers of TensorFlow 1.
        gradient_predivide_factor: f splits the averaging: 1/f before the sum, f/size after it.
        average_aggregated_gradients: divide by `backward_passes_per_step`.
        num_groups: deprecated; use `groups`.
        groups: the number of groups, or lists of variables, each a group.
        process_set: the ranks that take part.
        scale_local_gradients: divide the gradients of local variables by the number of ranks.

    Returns:
        The wrapped optimizer; `register_local_var(var)` leaves a variable's gradient alone.

    Raises:
        ValueError: none of these optimizers, or arguments that contradict one another.
    """
    of_steps = meant(op).row.directions
    if of_steps and average_aggregated_gradients:
        raise InvalidArgumentError("Adasum does not support average_aggregated_gradients=True.")
    chosen = chosen_groups(groups, num_groups)
    if isinstance(optimizer, _Wrapper):
        raise InvalidArgumentError(
            "This optimizer is a DistributedOptimizer already; its gradients would be reduced twice. Wrap the plain "
            "one."
        )
    if isinstance(optimizer, _LegacyOptimizer):
        if backward_passes_per_step > 1 and tf.executing_eagerly():
            raise InvalidArgumentError(
                "backward_passes_per_step > 1 is not supported for optimizers of TensorFlow 1 in eager mode. Use a "
                "Keras optimizer, or a graph."
            )
        options = ReductionOptions(op, compression, gradient_predivide_factor, backward_passes_per_step, process_set)
        reduction = GradientReduction(
            options, device_dense, device_sparse, sparse_as_dense, chosen, scale_local_gradients
        )
        wrapper = _DistributedAdasumOptimizer if of_steps else _DistributedOptimizer
        return wrapper(optimizer, name, use_locking, reduction, average_aggregated_gradients)
    if not hasattr(optimizer, "apply_gradients") or not hasattr(optimizer, "get_config"):
        raise InvalidArgumentError(
            f"Only optimizers of tf.compat.v1.train and of Keras can be wrapped. Received: {type(optimizer).__name__}."
        )
    if of_steps:
        raise InvalidArgumentError("op=hvd.Adasum is not supported with Keras optimizers; use Average or Sum.")
    from horovod.tensorflow import keras

    return keras.DistributedOptimizer(
        optimizer, name, device_dense, device_sparse, compression, sparse_as_dense, gradient_predivide_factor, op,
        backward_passes_per_step, average_aggregated_gradients, 0, chosen, process_set, scale_local_gradients,
    )  # fmt: skip


class _Wrapper(_LegacyOptimizer):  # type: ignore[misc,unused-ignore]
    """An optimizer of TensorFlow 1 around another one, to which it delegates everything else."""

    def __init__(
        self, optimizer: Any, name: Optional[str], use_locking: bool, reduction: GradientReduction, average: bool
    ) -> None:
        super().__init__(name=name or f"Distributed{type(optimizer).__name__}", use_locking=use_locking)
        self._optimizer = optimizer
        self._hvd_reduction = reduction
        passes = reduction.options.backward_passes_per_step
        self._hvd_helper: Optional[LocalGradientAggregationHelper] = None
        if passes > 1 and not reduction.options.row.directions:
            self._hvd_helper = LocalGradientAggregationHelper(
                passes, self._allreduce_grads, reduction.sparse_as_dense, average, 0, "optimizer",
                reduction.options.process_set, reduction.scale_local_gradients,
            )  # fmt: skip

    def register_local_var(self, var: Any) -> None:
        """Excludes this variable's gradient from the reduction: every rank has its own values of it."""
        self._hvd_reduction.register_local(var)

    def _allreduce_grads(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        return self._hvd_reduction.reduce(gradients, variables, self.get_name())

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        """Of the wrapped optimizer."""
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> Any:
        """Of the wrapped optimizer."""
        return self._optimizer.get_slot_names(*args, **kwargs)

    def variables(self, *args: Any, **kwargs: Any) -> Any:
        """Of the wrapped optimizer."""
        return self._optimizer.variables(*args, **kwargs)


class _DistributedOptimizer(_Wrapper):
    """Reduces the gradients before they are applied."""

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        """The wrapped optimizer's gradients, reduced. Collective when the graph runs."""
        pairs = self._optimizer.compute_gradients(*args, **kwargs)
        gradients, variables = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        if self._hvd_helper is not None:
            reduced = self._hvd_helper.compute_gradients(gradients, variables)
        else:
            reduced = self._allreduce_grads(gradients, variables)
        return list(zip(reduced, variables))

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Of the wrapped optimizer; with `backward_passes_per_step` > 1 in the last of the passes only, but
        `global_step` advances in each."""
        if self._hvd_helper is None:
            return self._optimizer.apply_gradients(grads_and_vars, global_step, *args, **kwargs)
        pairs = list(grads_and_vars)
        applied = self._hvd_helper.apply_gradients(
            lambda: self._optimizer.apply_gradients(pairs, None, *args, **kwargs),
            variables=[variable for _, variable in pairs],
        )
        if global_step is None:
            return applied
        with tf.control_dependencies([applied]):
            return tf.group(tf.compat.v1.assign_add(global_step, 1))


class _DistributedAdasumOptimizer(_Wrapper):
    """Applies gradients locally and combines what that changed: variable = start + Adasum(variable - start).

    Adasum combines directions of descent; an optimizer's own step is one, its raw gradient is not (Maleki et al. 2020).
    With `backward_passes_per_step`, this many local steps are one change.
    """

    def compute_gradients(self, *args: Any, **kwargs: Any) -> Any:
        """The wrapped optimizer's, as they are."""
        return self._optimizer.compute_gradients(*args, **kwargs)

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: Optional[str] = None) -> Any:
        """A local step, and Adasum of the changes. Collective when it runs, if it is the last of several steps."""
        pairs = [pair for pair in grads_and_vars if pair[0] is not None]
        variables = [variable for _, variable in pairs]
        starts, counted = [_copy(variable) for variable in variables], None
        if self._hvd_reduction.options.backward_passes_per_step > 1:
            starts, counted = self._first_starts(starts)
        with tf.control_dependencies(starts):
            stepped = self._optimizer.apply_gradients(pairs, global_step=global_step, name=name)

        def combine() -> Any:
            changes = [variable.read_value() - start for variable, start in zip(variables, starts)]
            combined = self._allreduce_grads(changes, variables)
            return tf.group(*[v.assign(start + change) for v, start, change in zip(variables, starts, combined)])

        with tf.control_dependencies([stepped] if stepped is not None else []):
            if counted is None:
                return combine()
            # The condition itself waits for the step: what a branch holds does not wait for what is outside.
            return tf.cond(tf.equal(counted, 0), combine, tf.no_op)

    def _first_starts(self, starts: list[Any]) -> tuple[list[Any], Any]:
        """The values before the first of the steps that are one change, and the steps done, 0 after the last."""
        counter = graph_variable([], tf.int64, "adasum_counter")
        first = tf.equal(counter.read_value(), 0)
        with tf.control_dependencies([first]):
            counted = counter.assign((counter + 1) % self._hvd_reduction.options.backward_passes_per_step)
        kept = []
        for i, start in enumerate(starts):
            variable = graph_variable(start.shape, start.dtype, f"adasum_start_{i}")
            kept.append(tf.identity(variable.assign(tf.where(first, start, variable.read_value()))))
        return kept, counted


def _copy(variable: Any) -> Any:
    """The variable's value now, whatever is assigned later: a tensor read from a reference variable is its memory."""
    is_resource = getattr(variable, "handle", None) is not None
    return tf.identity(variable) if is_resource else tf.raw_ops.DeepCopy(x=variable.read_value())
