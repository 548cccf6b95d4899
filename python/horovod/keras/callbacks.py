"""The callbacks of the Keras modules: broadcast at the start, metrics of all ranks, learning rates, best checkpoints.

They act through Keras' own interface only, on every backend. The rates themselves are computed in
`horovod._core.training.schedules`.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable
from typing import Any, Callable, Optional, Union

import numpy as np

from horovod._core.errors import InvalidArgumentError, MismatchError
from horovod._core.life import context
from horovod._core.operations.objects import allgather_object
from horovod._core.training.schedules import momentum_correction as corrected_momentum
from horovod._core.training.schedules import multiplier_function, scheduled_rate, warmup_multiplier
from horovod.keras import parameter_check, variables
from horovod.keras.flavour import flavour
from horovod.keras.installed import keras
from horovod.keras.plain_batches import PlainBatches

__all__ = [
    "BestModelCheckpoint", "BroadcastGlobalVariablesCallback", "LearningRateScheduleCallback",
    "LearningRateWarmupCallback", "MetricAverageCallback",
]  # fmt: skip


class BroadcastGlobalVariablesCallback(keras.callbacks.Callback):  # type: ignore[misc,unused-ignore]
    """Broadcasts the root's variables of model and optimizer after the first batch, when all exist. Collective: all
    ranks must have it in `model.fit`.

    With --check-parameters it also compares the trainable variables after the batches that follow. A job whose
    optimizer has reduced no gradient says so at its end.

    With TensorFlow on an accelerator without CUDA it also turns `jit_compile` off, which Keras turns on there by
    itself: Horovod's collectives cannot run inside XLA there.

    Args:
        root_rank: global rank that has the values.
        device: where TensorFlow's operator is placed; other backends' values travel through host memory.
        local_variables: variables of the model that are not broadcast; a list, or one.

    Raises:
        ValueError: a local variable that is not a variable.
    """

    def __init__(
        self, root_rank: int, device: str = "", local_variables: Union[Any, Iterable[Any], None] = None
    ) -> None:
        super().__init__()
        self.root_rank = root_rank
        self.device = device
        self.broadcast_done = False
        self._plain_batches = PlainBatches()
        self._local: list[Any] = []
        # A variable, too, can be iterated over.
        listed = [local_variables] if _is_variable(local_variables) else local_variables
        for variable in () if listed is None else listed:
            self.register_local_var(variable)

    def register_local_var(self, var: Any) -> None:
        """Keeps this variable local: every rank has its own values of it.

        Raises:
            ValueError: no variable.
        """
        if not _is_variable(var):
            raise InvalidArgumentError(f"A local variable must be a variable. Received: {type(var).__name__}.")
        self._local.append(var)

    def set_model(self, model: Any) -> None:
        """Called by Keras before the training step is made."""
        super().set_model(model)
        if keras.backend.backend() == "tensorflow" and model.jit_compile:
            from horovod.tensorflow.collectives import xla

            if xla.holds_no_collectives():
                warnings.warn("jit_compile is off: without CUDA, XLA cannot hold Horovod's collectives.", stacklevel=2)
                model.jit_compile = False
                model.train_function = None

    def on_train_batch_end(self, batch: int, logs: Optional[dict[str, Any]] = None) -> None:
        """Broadcasts after the first batch."""
        if self.broadcast_done:
            parameter_check.after_batch(self, self._local)
            self._plain_batches.after(self.model)
            return
        model = self.model
        local = {id(variable) for variable in self._local}
        shared = [v for v in variables.all_variables(model, model.optimizer) if not local.intersection(_identities(v))]
        variables.broadcast(shared, self.root_rank, self.device)
        self.broadcast_done = True


def _is_variable(value: Any) -> bool:
    return isinstance(value, flavour.VARIABLE) or _is_tensorflow_variable(value)


def _identities(variable: Any) -> set[int]:
    """A Keras variable and the TensorFlow variable inside it are the same."""
    inner = getattr(variable, "value", None)
    return {id(variable), id(inner)} if _is_tensorflow_variable(inner) else {id(variable)}


def _is_tensorflow_variable(variable: Any) -> bool:
    if keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    return isinstance(variable, tf.Variable)


class MetricAverageCallback(keras.callbacks.Callback):  # type: ignore[misc,unused-ignore]
    """Replaces the metrics at the end of each epoch by their averages over the ranks. Collective: all ranks must have
    it in `model.fit`. It must come before the callbacks that use metrics.

    Args:
        device: not needed: metrics are averaged in host memory.

    Raises:
        MismatchError: at the end of an epoch, on all ranks: they do not have the same metrics.
    """

    def __init__(self, device: str = "") -> None:
        super().__init__()
        self.device = device

    def on_epoch_end(self, epoch: int, logs: Optional[dict[str, Any]] = None) -> None:
        """Averages `logs` in place; values that are not numbers stay as they are."""
        own = {name: float(value) for name, value in (logs or {}).items() if _is_number(value)}
        of_all = allgather_object(own, name="MetricAverageCallback")
        for rank, theirs in enumerate(of_all):
            if theirs.keys() != of_all[0].keys():
                raise MismatchError(
                    f"MetricAverageCallback: the ranks have different metrics: rank 0 has {sorted(of_all[0])}, rank "
                    f"{rank} has {sorted(theirs)}. Give model.fit the same metrics, and validation data, on all ranks."
                )
        if logs:
            logs.update({name: sum(theirs[name] for theirs in of_all) / len(of_all) for name in own})


def _is_number(value: Any) -> bool:
    return np.ndim(value) == 0 and np.issubdtype(np.asarray(value).dtype, np.number)


class LearningRateScheduleCallback(keras.callbacks.Callback):  # type: ignore[misc,unused-ignore]
    """Sets the learning rate to `initial_lr` times a multiplier. Local. Notes the rate in the epoch's logs, as "lr".

    Args:
        initial_lr: rate that the multiplier scales; a variable counts as the number that it holds now.
        multiplier: a number, raised to the number of epochs since `start_epoch`; or a function of the epoch.
        start_epoch: first epoch of the schedule.
        end_epoch: first epoch after the schedule; None: no end.
        staircase: change at the start of epochs only; else the function gets the epoch with its fraction done, before
            every batch.
        momentum_correction: when the rate changes, scale the velocity gathered so far alike (Goyal et al. 2017); for
            Keras' SGD and RMSprop.
        steps_per_epoch: batches of an epoch, for `staircase=False`; None: as Keras knows them.

    Raises:
        ValueError: `initial_lr` is not a number; when training begins: the batches of an epoch are not known.
    """

    def __init__(
        self,
        initial_lr: float,
        multiplier: Union[float, Callable[[float], float]],
        start_epoch: float = 0,
        end_epoch: Optional[float] = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: Optional[int] = None,
    ) -> None:
        super().__init__()
        self.initial_lr = _number(initial_lr)
        self.multiplier = multiplier_function(multiplier, start_epoch)
        self.start_epoch = start_epoch
        self.end_epoch = end_epoch
        self.staircase = staircase
        self.momentum_correction = momentum_correction
        self.steps_per_epoch = steps_per_epoch
        self.current_epoch = 0

    def on_train_begin(self, logs: Optional[dict[str, Any]] = None) -> None:
        """Finds out how many batches an epoch has."""
        if self.staircase or self.steps_per_epoch:
            return
        self.steps_per_epoch = (self.params or {}).get("steps")
        if not self.steps_per_epoch:
            raise InvalidArgumentError(
                "steps_per_epoch is required: Keras does not know how many batches an epoch of this data has."
            )

    def on_epoch_begin(self, epoch: int, logs: Optional[dict[str, Any]] = None) -> None:
        """Sets the rate of a staircase."""
        self.current_epoch = epoch
        if self.staircase:
            self._adjust(epoch)

    def on_train_batch_begin(self, batch: int, logs: Optional[dict[str, Any]] = None) -> None:
        """Sets the rate of a smooth schedule."""
        if not self.staircase:
            self._adjust(self.current_epoch + batch / self.steps_per_epoch)  # type: ignore[operator]

    def on_epoch_end(self, epoch: int, logs: Optional[dict[str, Any]] = None) -> None:
        """Notes the rate."""
        if logs is not None:
            logs["lr"] = _rate_of(self.model.optimizer)

    def _adjust(self, epoch: float) -> None:
        bounds = (self.start_epoch, self.end_epoch)
        rate = scheduled_rate(self.initial_lr, self.multiplier, epoch, bounds, self.staircase)
        if rate is not None:
            self._set(rate)

    def _set(self, rate: float) -> None:
        optimizer = self.model.optimizer
        old = _rate_of(optimizer)
        optimizer.learning_rate = rate
        if self.momentum_correction and rate != old:
            _scale_velocity(optimizer, corrected_momentum(1.0, old, rate))


def _number(rate: Any) -> float:
    """The rate as it is now: an optimizer's own variable would change with every step of the schedule."""
    try:
        return float(flavour.to_numpy(rate))
    except (TypeError, ValueError):
        raise InvalidArgumentError(
            "initial_lr must be a number: the learning rate that the multiplier scales. Keras' schedules and this "
            f"callback exclude one another. Received: {rate!r}."
        ) from None


def _rate_of(optimizer: Any) -> float:
    return float(flavour.to_numpy(optimizer.learning_rate))


def _scale_velocity(optimizer: Any, factor: float) -> None:
    """Multiplies what momentum has gathered. A compiled step has the momentum itself inside as a constant; the velocity
    is a variable, and the next step multiplies one with the other."""
    for velocity in variables.velocities(optimizer):
        flavour.scale(velocity, factor)


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Raises the learning rate from `initial_lr` / number of ranks to `initial_lr`, a little before every batch; the
    warm-up's last batch has the full rate (Goyal et al. 2017). Local.

    Args:
        initial_lr: the rate after the warm-up, usually that of one rank times the number of ranks.
        warmup_epochs: length.
        momentum_correction, steps_per_epoch: as of `LearningRateScheduleCallback`.
        verbose: 1: rank 0 prints when the warm-up is over.

    Raises:
        ValueError: as of `LearningRateScheduleCallback`; or the length is not positive.
    """

    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: float = 5,
        momentum_correction: bool = True,
        steps_per_epoch: Optional[int] = None,
        verbose: int = 0,
    ) -> None:
        warmup_multiplier(warmup_epochs, 1)  # raises for a bad length
        super().__init__(
            initial_lr,
            self._warmed,
            end_epoch=warmup_epochs,
            staircase=False,
            momentum_correction=momentum_correction,
            steps_per_epoch=steps_per_epoch,
        )
        self.warmup_epochs = warmup_epochs
        self.verbose = verbose

    def _warmed(self, epoch: float) -> float:
        # The batch that begins counts as done. The number of ranks may change in an elastic job.
        return warmup_multiplier(self.warmup_epochs, context.size())(epoch + 1 / self.steps_per_epoch)  # type: ignore[operator]

    def on_epoch_end(self, epoch: int, logs: Optional[dict[str, Any]] = None) -> None:
        """After the last epoch of the warm-up: exactly the full rate, whatever has been rounded."""
        if epoch < self.warmup_epochs <= epoch + 1:
            self._set(self.initial_lr)
            if self.verbose and context.rank() == 0:
                # Asked for, and meant for the progress that Keras writes to the same place.
                sys.stdout.write(
                    f"\nEpoch {epoch + 1}: finished gradual learning rate warmup to {self.initial_lr:g}.\n"
                )
        super().on_epoch_end(epoch, logs)


class BestModelCheckpoint(keras.callbacks.ModelCheckpoint):  # type: ignore[misc,unused-ignore]
    """`keras.callbacks.ModelCheckpoint` that keeps the best model only. Local. The user assigns `filepath` before
    training, as the Spark estimator does.

    Args:
        monitor, verbose, mode, save_freq: as of `ModelCheckpoint`.

    Raises:
        ValueError: when training begins: no `filepath` has been assigned.
    """

    def __init__(
        self, monitor: str = "val_loss", verbose: int = 0, mode: str = "auto", save_freq: Union[str, int] = "epoch"
    ) -> None:
        self._begin(monitor, verbose, False, mode, save_freq)

    def _begin(
        self, monitor: str, verbose: int, save_weights_only: bool, mode: str, save_freq: Union[str, int]
    ) -> None:
        super().__init__(
            # Checked for its ending only.
            filepath=".weights.h5" if save_weights_only else ".keras",
            monitor=monitor,
            verbose=verbose,
            save_best_only=True,
            save_weights_only=save_weights_only,
            mode=mode,
            save_freq=save_freq,
        )
        self.filepath: Optional[str] = None

    def on_train_begin(self, logs: Optional[dict[str, Any]] = None) -> None:
        """Checks that there is a place to save to."""
        if self.filepath is None:
            raise InvalidArgumentError("BestModelCheckpoint needs a file: assign its attribute filepath before fit().")
        super().on_train_begin(logs)
