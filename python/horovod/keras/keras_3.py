"""What is specific to Keras 3, on its three backends. See `flavour`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Optional

import keras
import numpy as np

from horovod._core.errors import InvalidArgumentError
from horovod.keras.reducer import Reducer

__all__ = [
    "APPLY", "VARIABLE", "DistributedMethods", "are_reduced", "assign", "broadcast", "build", "legacy_velocities",
    "methods_of", "optimizer_bases", "optimizer_variables", "scale", "to_numpy", "to_tensor", "why_not",
]  # fmt: skip

APPLY: Final = "apply"
VARIABLE: Final = keras.Variable


class DistributedMethods:
    """See `flavour`. `apply` reduces, and `stateless_apply`, JAX's way."""

    _hvd_reduction: Reducer
    _hvd_reduced: bool
    # Of `distributed_class`.
    _hvd_kind: Any
    _hvd_wrap: Any
    # Of the user's class.
    built: bool
    build: Any
    _trainable_variables: Any

    def register_local_var(self, var: Any) -> None:
        """Excludes this variable's gradient from the reduction: every rank has its own values of it."""
        self._hvd_reduction.register_local(var)

    def apply(self, grads: Sequence[Any], trainable_variables: Optional[Sequence[Any]] = None) -> None:
        """As the user's class does it, with the gradients of all ranks combined, unless a distributed tape has done
        that. Collective.

        Raises:
            InvalidArgumentError: not one gradient per variable.
            MismatchError: the ranks disagree about a gradient (TensorFlow: FailedPreconditionError).
            HorovodInternalError: a rank died (TensorFlow: AbortedError).
        """
        plain: Any = super()
        grads = list(grads)
        if self._hvd_reduced or not grads:
            plain.apply(grads, trainable_variables)
            return
        variables = self._trainable_variables if trainable_variables is None else list(trainable_variables)
        self._hvd_check(grads, variables)
        if not self.built:
            # Here, because the last pass of several applies gradients inside a condition, where nothing can be made.
            self.build(variables)
        self._hvd_reduction.run(grads, variables, lambda reduced: plain.apply(reduced, trainable_variables))

    def _allreduce(self, grads: Sequence[Any], vars: Sequence[Any]) -> list[Any]:  # noqa: A002 - known by this name
        """The gradients of all ranks combined. Programs call it, or replace it with a function that calls it
        (docs/migration.md). Collective."""
        return self._hvd_reduction.allreduce(grads, vars)

    def stateless_apply(
        self, optimizer_variables: Sequence[Any], grads: Sequence[Any], trainable_variables: Sequence[Any]
    ) -> Any:
        """As the user's class does it, with the gradients of all ranks combined. Collective when the step runs."""
        plain: Any = super()
        self._hvd_check(grads, self._trainable_variables)
        # Reduced here, where no class can have put a condition around it yet, and so not again in `apply`.
        reduced = self._hvd_reduction.reduce(grads, self._trainable_variables)
        self.__dict__["_hvd_reduced"] = True
        try:
            return plain.stateless_apply(optimizer_variables, reduced, trainable_variables)
        finally:
            self.__dict__["_hvd_reduced"] = False

    @staticmethod
    def _hvd_check(grads: Sequence[Any], variables: Sequence[Any]) -> None:
        if len(grads) != len(variables):
            raise InvalidArgumentError(f"Received {len(grads)} gradients for {len(variables)} variables.")

    def __reduce__(self) -> Any:
        # Operations cannot be pickled: a pickle is an optimizer of the user's class, as a file is.
        plain: Any = super()
        _, arguments = plain.__reduce__()
        return self._hvd_kind._unpickle_model, arguments

    def __copy__(self) -> Any:
        return self.__deepcopy__({})

    def __deepcopy__(self, memo: Any) -> Any:
        make, arguments = self.__reduce__()
        return self._hvd_wrap(make(*arguments))

    def __setattr__(self, name: str, value: Any) -> None:
        # Only a LossScaleOptimizer around this one does that. It would look for infinities in this rank's gradients
        # and skip the step here alone: the others would wait for ever.
        if name == "loss_scale_factor" and value is None:
            raise InvalidArgumentError(
                "A DistributedOptimizer cannot be inside a LossScaleOptimizer, which Keras adds for mixed_float16. "
                "Use hvd.DistributedOptimizer(keras.optimizers.LossScaleOptimizer(optimizer))."
            )
        super().__setattr__(name, value)


def optimizer_bases() -> tuple[type, ...]:
    """See `flavour`."""
    return (keras.optimizers.Optimizer,)


def are_reduced(optimizer: Any, gradients: list[Any], variables: Any = None, *_: Any) -> bool:
    """See `flavour`. Only TensorFlow has tapes."""
    if keras.backend.backend() != "tensorflow":
        return False
    from horovod.tensorflow.gradients import reduction_notes

    return any(reduction_notes.take(gradients, optimizer._trainable_variables if variables is None else variables))


def methods_of(kind: type) -> type:
    """See `flavour`."""
    return DistributedMethods


def why_not(optimizer: Any) -> Optional[str]:
    """See `flavour`."""
    if isinstance(optimizer, keras.optimizers.Optimizer):
        return None
    return f"it is not an optimizer of Keras {keras.__version__}, which this process uses (see TF_USE_LEGACY_KERAS)"


def to_numpy(value: Any) -> Any:
    """See `flavour`."""
    is_of_keras = keras.ops.is_tensor(value) or isinstance(value, keras.Variable)
    return keras.ops.convert_to_numpy(value) if is_of_keras else np.asarray(value)


def to_tensor(array: Any) -> Any:
    """See `flavour`."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.convert_to_tensor(array) if tf.executing_eagerly() else array
    tensor = keras.ops.convert_to_tensor(array)
    # JAX cuts 64 bits down to 32 by default.
    return tensor if to_numpy(tensor).dtype == array.dtype else array


def assign(variables: Sequence[Any], values: Sequence[Any]) -> None:
    """See `flavour`."""
    for variable, value in zip(variables, values):
        variable.assign(value)


def scale(variable: Any, factor: float) -> None:
    """See `flavour`."""
    variable.assign(variable * factor)


def broadcast(variables: Sequence[Any], root_rank: int) -> None:
    """See `flavour`."""
    from horovod.tensorflow.functions import broadcast_variables

    broadcast_variables(variables, root_rank)


def build(optimizer: Any, variables: Sequence[Any]) -> None:
    """See `flavour`."""
    if not optimizer.built:
        optimizer.build(variables)


def optimizer_variables(optimizer: Any) -> list[Any]:
    """See `flavour`."""
    return list(optimizer.variables)


def legacy_velocities(optimizer: Any) -> list[Any]:
    """See `flavour`. There are none."""
    return []
