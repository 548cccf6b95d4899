"""Elastic training with Keras: the retry loop of `horovod._core.training.elastic`, the state of a model, and the
callbacks that keep it up to date during `model.fit`."""

from __future__ import annotations

import copy
import functools
from typing import Any, Optional, cast

from horovod._core.errors import InvalidArgumentError
from horovod._core.life import context
from horovod._core.operations.objects import broadcast_object
from horovod._core.training.elastic import state as core_state
from horovod._core.training.elastic.loop import F, reset_engine, run_fn
from horovod._core.training.elastic.snapshot import Snapshot
from horovod.keras import variables
from horovod.keras.flavour import flavour
from horovod.keras.installed import keras

__all__ = ["CommitStateCallback", "KerasState", "UpdateBatchStateCallback", "UpdateEpochStateCallback", "run"]


def run(func: F) -> F:
    """Decorator of a training function whose first argument is a state: runs it again after a failure or a change of
    hosts. Failures of collectives inside a training step count like those outside.

    Collective: all ranks run the function.
    """
    backend = keras.backend.backend()
    if backend == "tensorflow":
        from horovod.tensorflow import elastic

        return elastic.run(func)
    return run_fn(_translated(func) if backend == "jax" else func, reset_engine)


def _translated(func: F) -> F:
    """JAX raises an error of its own for what fails inside a step; this raises Horovod's."""
    from horovod.keras.backends.jax import failure_behind, forget_failure

    @functools.wraps(func)
    def translated(*args: Any, **kwargs: Any) -> Any:
        forget_failure()
        try:
            return func(*args, **kwargs)
        except Exception as error:
            failure = failure_behind(error)
            if failure is None or failure is error:
                raise
            raise failure from error

    return cast("F", translated)


class KerasState(core_state.ObjectState):
    """A model's and its optimizer's variables and picklable attributes, which survive a failure or a change of hosts.

    Args:
        model: built.
        optimizer: None: the model's own, if it has one.
        **kwargs: each becomes an attribute, `epoch=0` and `batch=0` for example.

    Raises:
        ValueError: the model is not built.
    """

    def __init__(self, model: Any, optimizer: Any = None, **kwargs: Any) -> None:
        if not model.built:
            raise InvalidArgumentError(
                "KerasState needs a model that has been built. Call model.build(input_shape) or the model on a batch "
                "first."
            )
        self.model = model
        self.optimizer = optimizer if optimizer is not None else getattr(model, "optimizer", None)
        if self.optimizer is not None:
            flavour.build(self.optimizer, model.trainable_variables)
        self._values = Snapshot(self._values_now())
        super().__init__(bcast_object=broadcast_object, get_rank=context.rank, **kwargs)

    def save(self) -> None:
        """Keeps the values in memory.

        Raises:
            HorovodInternalError: collectives that have made them on a GPU were aborted.
        """
        self._keep_values()
        super().save()

    def restore(self) -> None:
        """Restores the values saved last."""
        values = self._values.value
        if keras.backend.backend() == "jax":
            values = copy.deepcopy(values)  # JAX takes an array as it is, and the memory of a commit is used again
        variables.assign(self._variables(), values)
        core_state.forget_passes(self.optimizer)
        super().restore()

    def sync(self) -> None:
        """Broadcasts rank 0's values to all ranks. Collective."""
        variables.synced(self.model)
        variables.broadcast(self._variables(), 0)
        self._keep_values()
        self._sync_attributes()

    def reset(self) -> None:
        """Begins a new step, and makes JAX compile it again: it contains numbers of ranks and process sets."""
        core_state.forget_passes(self.optimizer)
        if keras.backend.backend() == "jax":
            self.model.train_function = None

    def _to_write(self) -> dict[str, Snapshot]:
        return {**super()._to_write(), "variables": self._values}

    def _take_over(self, parts: dict[str, Any]) -> None:
        super()._take_over(parts)
        self._values = core_state.fitting(parts["variables"], self._variables())

    def _keep_values(self) -> None:
        values = self._values_now()
        variables.await_collectives()  # before the memory of an earlier commit is used again
        self._values = Snapshot(values, self._values)

    def _values_now(self) -> list[Any]:
        variables.synced(self.model)
        return variables.values_now(self._variables())

    def _variables(self) -> list[Any]:
        return variables.all_variables(self.model, self.optimizer)


class CommitStateCallback(keras.callbacks.Callback):  # type: ignore[misc,unused-ignore]
    """Commits a state every few batches and after every epoch. Collective. What is due is committed when the next batch
    or epoch begins, or training ends: by then all callbacks, before and after this one, have said what they count. On
    an epoch's last batch nothing is due but the epoch.

    Args:
        state: of any kind.
        batches_per_commit: number of batches that a failure may lose.

    Raises:
        ValueError: no positive number of batches.
        HostsUpdatedInterrupt: in training: hosts have changed.
    """

    def __init__(self, state: core_state.State, batches_per_commit: int = 1) -> None:
        super().__init__()
        if batches_per_commit < 1:
            raise InvalidArgumentError(f"batches_per_commit must be >= 1. Received: {batches_per_commit!r}.")
        self.state = state
        self.batches_per_commit = batches_per_commit
        self._since = 0  # batches since the last commit that was due
        self._in_epoch = 0
        self._due = False

    def on_train_begin(self, logs: Optional[dict[str, Any]] = None) -> None:
        """Resets the count on all ranks; newly joined ones start at zero."""
        self._since, self._due = 0, False

    def on_epoch_begin(self, epoch: int, logs: Optional[dict[str, Any]] = None) -> None:
        """Commits if a commit is left over from the epoch before."""
        self._commit()
        self._in_epoch = 0

    def on_train_batch_begin(self, batch: int, logs: Optional[dict[str, Any]] = None) -> None:
        """Commits if it is due."""
        self._commit()

    def on_train_batch_end(self, batch: int, logs: Optional[dict[str, Any]] = None) -> None:
        """Counts; Keras calls it once for several batches if `steps_per_execution` says so."""
        self._since += batch + 1 - self._in_epoch
        self._in_epoch = batch + 1
        if self._since >= self.batches_per_commit:
            self._since %= self.batches_per_commit
            self._due = self._in_epoch != (self.params or {}).get("steps")

    def on_epoch_end(self, epoch: int, logs: Optional[dict[str, Any]] = None) -> None:
        """The end of an epoch is always committed."""
        self._due = True

    def on_train_end(self, logs: Optional[dict[str, Any]] = None) -> None:
        """Commits the last epoch."""
        self._commit()

    def _commit(self) -> None:
        if self._due:
            self._due = False
            self.state.commit()


class UpdateBatchStateCallback(keras.callbacks.Callback):  # type: ignore[misc,unused-ignore]
    """Keeps `state.batch`, the number of batches of the current epoch that are done. Local. After a restart the
    script handles the remaining batches of the epoch (`steps_per_epoch=steps - state.batch`); they are counted on.

    Args:
        state: with an attribute `batch`.
    """

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self._before = 0

    def on_epoch_begin(self, epoch: int, logs: Optional[dict[str, Any]] = None) -> None:
        """Notes how many batches of the epoch were done before."""
        self._before = self.state.batch

    def on_train_batch_end(self, batch: int, logs: Optional[dict[str, Any]] = None) -> None:
        """Counts the batch."""
        self.state.batch = self._before + batch + 1

    def on_epoch_end(self, epoch: int, logs: Optional[dict[str, Any]] = None) -> None:
        """A new epoch starts at batch zero."""
        self.state.batch = 0


class UpdateEpochStateCallback(keras.callbacks.Callback):  # type: ignore[misc,unused-ignore]
    """Keeps `state.epoch`, the number of epochs that are done. Local. Works both with `epochs=n - state.epoch` and with
    `initial_epoch=state.epoch`.

    Args:
        state: with an attribute `epoch`.
    """

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self._before: Optional[int] = None

    def on_train_begin(self, logs: Optional[dict[str, Any]] = None) -> None:
        """Forgets the epochs of an earlier `fit`."""
        self._before = None

    def on_epoch_begin(self, epoch: int, logs: Optional[dict[str, Any]] = None) -> None:
        """Notes how many epochs were done before this `fit`."""
        if self._before is None:
            self._before = self.state.epoch - epoch

    def on_epoch_end(self, epoch: int, logs: Optional[dict[str, Any]] = None) -> None:
        """Counts the epoch."""
        self.state.epoch = (self._before or 0) + epoch + 1
