"""Elastic training with TensorFlow: the retry loop of `horovod._core.training.elastic`, and states for variables and
models."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import wraps
from typing import Any, Optional, cast

import tensorflow as tf

from horovod._core.errors import HorovodInternalError, InvalidArgumentError
from horovod._core.life import context
from horovod._core.operations.described_call import failure_named_in
from horovod._core.operations.objects import broadcast_object
from horovod._core.training.elastic import state
from horovod._core.training.elastic.loop import F, reset_engine, run_fn
from horovod._core.training.elastic.snapshot import Snapshot
from horovod.tensorflow.collectives import ops
from horovod.tensorflow.elastic_copies import await_collectives, value_now
from horovod.tensorflow.functions import broadcast_variables, build_optimizer, optimizer_variables

__all__ = ["TensorFlowKerasState", "TensorFlowState", "run"]

# What a collective inside a graph raises when a rank has died or the engine stops (see `ops`).
_COLLECTIVE_FAILURES = (tf.errors.AbortedError, tf.errors.UnknownError)


def run(func: F) -> F:
    """Decorator of a training function whose first argument is a state: runs it again after a failure or a change of
    hosts. Failures of collectives inside TensorFlow count like those outside."""

    @wraps(func)
    def translated(*args: Any, **kwargs: Any) -> Any:
        with _translated_failures():
            return func(*args, **kwargs)

    return run_fn(cast("F", translated), reset_engine, _translated_failures)


@contextlib.contextmanager
def _translated_failures() -> Iterator[None]:
    """Turns TensorFlow's errors of our collectives into Horovod's."""
    try:
        yield
    except _COLLECTIVE_FAILURES as cause:
        if "Horovod: " not in str(cause):
            raise
        raise HorovodInternalError(str(cause)) from cause
    except tf.errors.InternalError as cause:  # from XLA, whatever has failed
        failure = failure_named_in(cause)
        if failure is None:
            raise
        raise failure from cause


class TensorFlowState(state.ObjectState):
    """Variables and picklable attributes that survive a failure or a change of hosts.

    Args:
        variables: `tf.Variable`s or Keras variables; None: the global variables of the graph.
        session: of TensorFlow 1; None: eager mode, or the default session.
        **kwargs: each becomes an attribute.

    Attributes:
        variables, session: as given.

    Raises:
        ValueError: no variables are given in eager mode.
    """

    def __init__(self, variables: Optional[Sequence[Any]] = None, session: Any = None, **kwargs: Any) -> None:
        if variables is None and tf.executing_eagerly():
            raise InvalidArgumentError(
                "TensorFlowState without variables keeps the global variables of a graph; eager mode has no list of "
                "them. Use TensorFlowState(variables=model.variables), or TensorFlowKerasState(model)."
            )
        self.variables = list(tf.compat.v1.global_variables() if variables is None else variables)
        self.session = session
        self._values = Snapshot([])
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
        for variable, value in zip(self.variables, self._values.value):
            self._write(variable, value)
        super().restore()

    def sync(self) -> None:
        """Broadcasts rank 0's values to all ranks. Collective."""
        if tf.executing_eagerly():
            broadcast_variables(self.variables, root_rank=0)
        else:
            values = broadcast_object([self._read(variable) for variable in self.variables], 0)
            for variable, value in zip(self.variables, values):
                self._write(variable, value)
        self._keep_values()
        self._sync_attributes()

    def _keep_values(self) -> None:
        values = [self._read(variable) for variable in self.variables]
        await_collectives()  # before the memory of an earlier commit is used again
        self._values = Snapshot(values, self._values)

    def _to_write(self) -> dict[str, Snapshot]:
        return {**super()._to_write(), "variables": self._values}

    def _take_over(self, parts: dict[str, Any]) -> None:
        super()._take_over(parts)
        self._values = state.fitting(parts["variables"], self.variables)

    def _read(self, variable: Any) -> Any:
        variable = ops.tensorflow_variable(variable)
        return value_now(variable) if tf.executing_eagerly() else self._current_session().run(variable)

    def _write(self, variable: Any, value: Any) -> None:
        if tf.executing_eagerly():
            variable.assign(value)
        else:
            ops.tensorflow_variable(variable).load(value, self._current_session())

    def _current_session(self) -> Any:
        return self.session or tf.compat.v1.get_default_session()


class TensorFlowKerasState(TensorFlowState):
    """A Keras model's weights, its optimizer's variables and picklable attributes.

    Args:
        model: built.
        optimizer: None: the model's own.
        backend: accepted, not needed.
        **kwargs: each becomes an attribute.

    Raises:
        ValueError: the model is not built.
    """

    def __init__(self, model: Any, optimizer: Any = None, backend: Any = None, **kwargs: Any) -> None:
        if not getattr(model, "built", True):
            raise InvalidArgumentError(
                "TensorFlowKerasState needs a model that has been built. Call model.build(input_shape) or the model on "
                "a batch first."
            )
        self.model = model
        self.optimizer = optimizer or getattr(model, "optimizer", None)
        variables = list(model.variables)
        if self.optimizer is not None:
            build_optimizer(self.optimizer, model.trainable_variables)
            variables += optimizer_variables(self.optimizer)
        super().__init__(variables, **kwargs)

    def restore(self) -> None:
        """Restores the values saved last, and the first pass of a step."""
        state.forget_passes(self.optimizer)
        super().restore()

    def reset(self) -> None:
        """Begins a whole step."""
        state.forget_passes(self.optimizer)

    def _to_write(self) -> dict[str, Snapshot]:
        # Says that `restore` above keeps nothing more than the base does.
        return super()._to_write()
