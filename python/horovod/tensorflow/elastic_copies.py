"""How a commit copies the value of a TensorFlow variable.

TensorFlow changes a variable's memory in place only while nobody else holds it. So a commit takes the value, which
costs nothing, and a thread copies it meanwhile; a step that comes sooner gives the variable new memory. That holds for
eager steps, for functions, and for those that XLA has compiled.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple, Optional

import numpy as np
import tensorflow as tf

from horovod._core.training.elastic import arrival, snapshot

__all__ = ["await_collectives", "value_now"]


class _Value(NamedTuple):
    """A type of its own: what the user keeps in a state as a tensor must stay one."""

    tensor: Any


def value_now(variable: tf.Variable) -> _Value:
    """The value that an eager variable has at this moment, whatever happens to it later. A `Snapshot` of it is an
    array."""
    return _Value(variable.value())


def await_collectives() -> None:
    """See `horovod._core.training.elastic.arrival`: functions that XLA has compiled hold collectives on a GPU. What a
    session of TensorFlow 1 has given is there.

    Raises:
        HorovodInternalError: the engine has failed meanwhile, so that an operation may have been aborted.
    """
    arrival.await_collectives(_synchronize)


def _synchronize(device: int) -> None:
    if tf.executing_eagerly():
        tf.test.experimental.sync_devices()


def _copied(value: _Value, old: Any) -> tuple[np.ndarray[Any, Any], Optional[snapshot.Later]]:
    """See `snapshot.register`."""
    tensor = value.tensor
    dtype = np.dtype(tensor.dtype.as_numpy_dtype)
    if dtype.hasobject:
        return np.array(tensor.numpy()), None
    fits = isinstance(old, np.ndarray) and (old.shape, old.dtype) == (tuple(tensor.shape), dtype)
    kept = old if fits else np.empty(tuple(tensor.shape), dtype)
    return kept, functools.partial(_copy, kept, tensor)


def _copy(kept: np.ndarray[Any, Any], tensor: Any) -> None:
    np.copyto(kept, np.asarray(tensor))


snapshot.register(_Value, _copied)
