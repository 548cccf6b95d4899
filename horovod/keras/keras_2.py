"""What is peculiar to Keras 2, which runs on TensorFlow only: `apply_gradients` instead of `apply`, optimizers of two
generations. See `flavour`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, Optional

import numpy as np
import tensorflow as tf

from horovod._core.errors import InvalidArgumentError
from horovod.keras.installed import keras
from horovod.keras.reduction import Reduction
from horovod.tensorflow.functions import broadcast_variables, build_optimizer, optimizer_variables

__all__ = [
    "VARIABLE", "DistributedMethods", "assign", "broadcast", "build", "legacy_velocities", "optimizer_variables",
    "scale", "to_numpy", "why_not",
]  # fmt: skip

_LEGACY: Final = keras.optimizers.legacy.Optimizer
VARIABLE: Final = tf.Variable


class DistributedMethods:
    """See `flavour`. For both generations of optimizers, and for Keras' LossScaleOptimizer of each."""

    _hvd_reduction: Reduction
    # Of the user's class.
    iterations: Any

    def register_local_var(self, var: Any) -> None:
        """The gradient of this variable is not reduced: every rank has its own values of it."""
        self._hvd_reduction.register_local(var)

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, Any]],
        name: Optional[str] = None,
        skip_gradients_aggregation: bool = False,
        experimental_aggregate_gradients: bool = True,
    ) -> Any:
        """As the user's class does it, with the gradients of all ranks combined. Collective.

        Args:
            grads_and_vars: (gradient, variable) pairs; a gradient is a tensor, `tf.IndexedSlices` or None.
            name: as of the user's class.
            skip_gradients_aggregation: apply them as they are. Local.
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
            return apply(gradients)
        with tf.init_scope():
            # Here, because the last pass of several applies gradients inside a condition, where nothing can be made.
            build(self, variables)
        return self._hvd_reduction.run(gradients, variables, apply)

    def aggregate_gradients(self, grads_and_vars: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        """The gradients of all ranks combined. Collective. Keras' LossScaleOptimizer around this one calls it before it
        looks for infinities, so that all ranks skip a step or none.

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

    _aggregate_gradients = aggregate_gradients  # of legacy optimizers


def why_not(optimizer: Any) -> Optional[str]:
    """See `flavour`."""
    if isinstance(optimizer, _LEGACY):
        return None
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        return f"it is no optimizer of Keras {keras.__version__}, which this process uses (see TF_USE_LEGACY_KERAS)"
    if not tf.compat.v1.executing_eagerly_outside_functions():
        return "Keras itself cannot use it in graphs of TensorFlow 1. Use its like in keras.optimizers.legacy"
    return None


def to_numpy(value: Any) -> Any:
    """See `flavour`."""
    return np.asarray(keras.backend.get_value(value))  # runs Keras' session in graphs of TensorFlow 1


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
