"""What is specific to Keras 2, which runs on TensorFlow only: `compute_gradients` and `apply_gradients` instead of
`apply`, optimizers of two generations. See `flavour`."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any, Final, Optional

import numpy as np
import tensorflow as tf

from horovod._core.errors import InvalidArgumentError
from horovod.keras.backends.tensorflow import TensorFlowReducer
from horovod.keras.installed import keras
from horovod.tensorflow.functions import broadcast_variables, build_optimizer, optimizer_variables
from horovod.tensorflow.gradients import reduction_notes

__all__ = [
    "APPLY", "VARIABLE", "DistributedMethods", "are_reduced", "assign", "broadcast", "build", "legacy_velocities",
    "methods_of", "optimizer_bases", "optimizer_variables", "scale", "to_numpy", "to_tensor", "why_not",
]  # fmt: skip

_LEGACY: Final = keras.optimizers.legacy.Optimizer
APPLY: Final = "apply_gradients"
VARIABLE: Final = tf.Variable


class DistributedMethods:
    """See `flavour`. What both generations of optimizers have, and Keras' LossScaleOptimizer of each. Gradients that
    have not been reduced when they were computed are when they are applied."""

    _hvd_reduction: TensorFlowReducer
    # Of the user's class.
    iterations: Any

    def minimize(self, loss: Any, var_list: Any, *args: Any, **kwargs: Any) -> Any:
        """As the user's class does it, with the gradients of all ranks combined. Collective.

        Args:
            loss, var_list: and all others, as of the user's class.
        """
        plain: Any = super()
        with self._hvd_reduction.minimizing():
            return plain.minimize(loss, var_list, *args, **kwargs)

    def register_local_var(self, var: Any) -> None:
        """Excludes this variable's gradient from the reduction: every rank has its own values of it."""
        self._hvd_reduction.register_local(var)

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, Any]],
        name: Optional[str] = None,
        skip_gradients_aggregation: bool = False,
        experimental_aggregate_gradients: bool = True,
    ) -> Any:
        """As the user's class does it, with the gradients of all ranks combined, unless `compute_gradients` or a
        distributed tape has done that. Collective.

        Args:
            grads_and_vars: (gradient, variable) pairs; a gradient is a tensor, `tf.IndexedSlices` or None.
            name: as of the user's class.
            skip_gradients_aggregation: apply them as they are, reduced or not. Local.
            experimental_aggregate_gradients: False: the same, as legacy optimizers spell it.

        Raises:
            FailedPreconditionError: (TensorFlow's) the ranks disagree about a gradient.
            AbortedError: (TensorFlow's) a rank died.
        """
        plain: Any = super()
        pairs = list(grads_and_vars)
        options: dict[str, Any] = {} if name is None else {"name": name}

        def apply(gradients: Sequence[Any]) -> Any:
            reduced = [(gradient, variable) for gradient, (_, variable) in zip(gradients, pairs)]
            # The spelling that every class understands: aggregation has been done, by this class.
            return plain.apply_gradients(reduced, experimental_aggregate_gradients=False, **options)

        gradients, variables = [gradient for gradient, _ in pairs], [variable for _, variable in pairs]
        if skip_gradients_aggregation or not experimental_aggregate_gradients or not pairs:
            return self._hvd_reduction.run_reduced(gradients, variables, apply)
        with tf.init_scope():
            # Here, because the last pass of several applies gradients inside a condition, where nothing can be made.
            build(self, variables)
        return self._hvd_reduction.run(gradients, variables, apply)

    def aggregate_gradients(self, grads_and_vars: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        """The gradients of all ranks combined, unless they are already. Collective. Keras' LossScaleOptimizer around
        this one calls it before it looks for infinities, so that all ranks skip a step or none.

        Args:
            grads_and_vars: as of `apply_gradients`.

        Raises:
            InvalidArgumentError: several backward passes per step.
        """
        passes = self._hvd_reduction.settings.options.backward_passes_per_step
        if passes > 1:
            raise InvalidArgumentError(
                f"A DistributedOptimizer with backward_passes_per_step={passes} cannot be inside a LossScaleOptimizer, "
                "which would look for infinities in every pass. Use hvd.DistributedOptimizer("
                "keras.mixed_precision.LossScaleOptimizer(optimizer), ...)."
            )
        pairs = list(grads_and_vars)
        variables = [variable for _, variable in pairs]
        return list(zip(self._hvd_reduction.reduce([gradient for gradient, _ in pairs], variables), variables))

    def _allreduce(self, grads: Sequence[Any], vars: Sequence[Any]) -> list[Any]:  # noqa: A002 - known by this name
        """The gradients of all ranks combined. Programs call it, or replace it with a function that calls it
        (docs/migration.md). Collective."""
        return self._hvd_reduction.allreduce(grads, vars)

    @property
    def _agg_helper(self) -> Any:
        # Adds up the gradients of several passes; None with one pass per step.
        return self._hvd_reduction.passes

    def __deepcopy__(self, memo: Any) -> Any:
        plain: Any = super()
        made = plain.__deepcopy__(memo) if hasattr(plain, "__deepcopy__") else _copied(self, memo)
        made._hvd_reduction.adopt(made)
        return made

    def _hvd_computed(self, grads_and_vars: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        pairs = list(grads_and_vars)
        gradients, variables = [gradient for gradient, _ in pairs], [variable for _, variable in pairs]
        with tf.init_scope():
            build(self, variables)
        return list(zip(self._hvd_reduction.compute(gradients, variables), variables))


class _NewMethods(DistributedMethods):
    """The methods of the optimizers that Keras has had since 2.11."""

    def compute_gradients(self, loss: Any, var_list: Any, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        """The gradients of all ranks combined; `minimize` begins with it. Collective.

        Args:
            loss, var_list: and all others, as of the user's class.
        """
        plain: Any = super()
        return self._hvd_computed(plain.compute_gradients(loss, var_list, *args, **kwargs))

    def _compute_gradients(
        self, loss: Any, var_list: Any, grad_loss: Any = None, tape: Any = None
    ) -> list[tuple[Any, Any]]:
        # Known by this name, which legacy optimizers have; `grad_loss` as there.
        if grad_loss is None:
            return self.compute_gradients(loss, var_list, tape)
        if tape is None:
            raise InvalidArgumentError("_compute_gradients with grad_loss needs tape=, in which the loss was computed.")
        variables = tf.nest.flatten(var_list)
        return self._hvd_computed(zip(tape.gradient(loss, variables, grad_loss), variables))


class _LegacyMethods(DistributedMethods):
    """The methods of legacy optimizers, under the names that these use."""

    def _compute_gradients(
        self, loss: Any, var_list: Any, grad_loss: Any = None, tape: Any = None
    ) -> list[tuple[Any, Any]]:
        plain: Any = super()
        return self._hvd_computed(plain._compute_gradients(loss, var_list, grad_loss, tape))

    def get_gradients(self, loss: Any, params: Any) -> list[Any]:
        """The gradients of all ranks combined, in graphs of TensorFlow 1. Collective when they are run.

        Args:
            loss, params: as of the user's class.
        """
        plain: Any = super()
        gradients = plain.get_gradients(loss, params)
        return [gradient for gradient, _ in self._hvd_computed(zip(gradients, tf.nest.flatten(params)))]

    def get_updates(self, loss: Any, params: Any) -> Any:
        """As `minimize`, in graphs of TensorFlow 1.

        Args:
            loss, params: as of the user's class.
        """
        plain: Any = super()
        with self._hvd_reduction.minimizing():
            return plain.get_updates(loss, params)

    def _aggregate_gradients(self, grads_and_vars: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        return self.aggregate_gradients(grads_and_vars)


def _copied(optimizer: Any, memo: Any) -> Any:
    """A deep copy as legacy optimizers make it: of everything but TensorFlow's strategy, of which there is one."""
    strategy = tf.distribute.get_strategy()
    memo[id(strategy)] = strategy
    made = memo[id(optimizer)] = object.__new__(type(optimizer))
    made.__dict__.update(copy.deepcopy(optimizer.__dict__, memo))
    return made


def optimizer_bases() -> tuple[type, ...]:
    """See `flavour`."""
    return keras.optimizers.Optimizer, _LEGACY


def are_reduced(optimizer: Any, gradients: list[Any], *_: Any) -> bool:
    """See `flavour`. Here the gradients come with their variables."""
    return any(reduction_notes.take([gradient for gradient, _ in gradients], [variable for _, variable in gradients]))


def methods_of(kind: type) -> type:
    """See `flavour`."""
    return _LegacyMethods if issubclass(kind, _LEGACY) else _NewMethods


def why_not(optimizer: Any) -> Optional[str]:
    """See `flavour`."""
    if isinstance(optimizer, _LEGACY):
        return None
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        return f"it is not an optimizer of Keras {keras.__version__}, which this process uses (see TF_USE_LEGACY_KERAS)"
    if not tf.compat.v1.executing_eagerly_outside_functions():
        return "Keras itself cannot use it in graphs of TensorFlow 1. Use its counterpart in keras.optimizers.legacy"
    return None


def to_numpy(value: Any) -> Any:
    """See `flavour`."""
    return np.asarray(keras.backend.get_value(value))  # runs Keras' session in graphs of TensorFlow 1


def to_tensor(array: Any) -> Any:
    """See `flavour`."""
    return tf.convert_to_tensor(array) if tf.executing_eagerly() else array


def assign(variables: Sequence[Any], values: Sequence[Any]) -> None:
    """See `flavour`."""
    keras.backend.batch_set_value(list(zip(variables, values)))


def scale(variable: Any, factor: float) -> None:
    """See `flavour`."""
    if tf.executing_eagerly():
        variable.assign(variable * factor)
    else:
        keras.backend.set_value(variable, to_numpy(variable) * factor)


def broadcast(variables: Sequence[Any], root_rank: int) -> None:
    """See `flavour`."""
    operation = broadcast_variables(variables, root_rank)
    if operation is not None:
        tf.compat.v1.keras.backend.get_session().run(operation)


def build(optimizer: Any, variables: Sequence[Any]) -> None:
    """See `flavour`."""
    build_optimizer(optimizer, variables)


def legacy_velocities(optimizer: Any) -> list[Any]:
    """See `flavour`."""
    if not isinstance(optimizer, (keras.optimizers.legacy.SGD, keras.optimizers.legacy.RMSprop)):
        return []
    return [slots["momentum"] for slots in optimizer._slots.values() if "momentum" in slots]
