"""Collectives on plain values: numbers, arrays and tensors in, tensors of Keras' backend out. For metrics and other
small things outside of the training step.

NumPy comes out where the backend has no such tensor: in graphs of TensorFlow 1, and of 64 bits with JAX."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np

from horovod._core.errors import UnsupportedError
from horovod._core.operations import reduce_ops
from horovod._core.operations.collectives import Collectives
from horovod._core.operations.reduce_ops import Average
from horovod._core.tensors.compression import Compressor
from horovod.keras.compression import Compression, for_arrays
from horovod.keras.flavour import flavour
from horovod.keras.installed import keras
from horovod.numpy import adapter

__all__ = ["allgather", "allreduce", "broadcast", "broadcast_global_variables", "reducescatter"]

_collectives = Collectives(adapter.adapter)


def _array(value: Any) -> Any:
    array = np.array(flavour.to_numpy(value), order="C")
    # Python's numbers are what frameworks make of them.
    return array.astype(np.float32) if array.dtype == np.float64 and _has_no_dtype(value) else array


def _tensor(result: Any, value: Any) -> Any:
    """What is handed out for the value that was given; the result is equal on all ranks."""
    # Integers travel with 64 bits, and keep them only where they need them.
    if _has_no_dtype(value) and result.dtype == np.int64 and (result == result.astype(np.int32)).all():
        result = result.astype(np.int32)
    return flavour.to_tensor(result)


def _has_no_dtype(value: Any) -> bool:
    return not hasattr(value, "dtype")


def allreduce(
    value: Any,
    name: Optional[str] = None,
    average: Optional[bool] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: Optional[int] = None,
    compression: Compressor = Compression.none,
) -> Any:
    """Combines the values of all ranks, element by element. Collective.

    Args:
        value: a number, list, array or tensor, of the same dtype and shape on all ranks.
        name: identity of the operation, equal on all ranks; None: counted.
        average: deprecated; True = Average, False = Sum.
        prescale_factor, postscale_factor: multiply before and after.
        op: hvd.Average (default), Sum or Adasum.
        compression: hvd.Compression.none, fp16 or bf16.

    Returns:
        A tensor.

    Raises:
        ValueError: op and average are both given.
    """
    array = _array(value)
    chosen = reduce_ops.resolve(op, average)
    result = _collectives.allreduce(
        array, None, name, for_arrays(compression), chosen, prescale_factor, postscale_factor
    )
    return _tensor(result, value)


def allgather(value: Any, name: Optional[str] = None) -> Any:
    """Joins the values of all ranks along the first dimension. Collective.

    Args:
        value: an array or tensor of at least one dimension; the first may differ between the ranks.
        name: identity of the operation, equal on all ranks; None: counted.

    Returns:
        A tensor.
    """
    return _tensor(_collectives.allgather(_array(value), name), value)


def broadcast(value: Any, root_rank: int, name: Optional[str] = None) -> Any:
    """Broadcasts the value of one rank to all ranks. Collective.

    Args:
        value: a number, list, array or tensor, of the same dtype and shape on all ranks.
        root_rank: global rank that has the value.
        name: identity of the operation, equal on all ranks; None: counted.

    Returns:
        A tensor.
    """
    return _tensor(_collectives.broadcast(_array(value), root_rank, name), value)


def reducescatter(value: Any, name: Optional[str] = None, op: int = Average) -> Any:
    """Combines the values of all ranks and leaves each rank its block of rows. Collective.

    Args:
        value: an array or tensor of at least one dimension, of the same dtype and shape on all ranks.
        name: identity of the operation, equal on all ranks; None: counted.
        op: hvd.Average or hvd.Sum.

    Returns:
        A tensor: the rows of this rank.
    """
    # The ranks have different rows: integers keep their 64 bits, so that all get the same dtype.
    return flavour.to_tensor(_collectives.reducescatter(_array(value), name, op=op))


def broadcast_global_variables(root_rank: int) -> Any:
    """The operation that assigns the root's values to all global variables of TensorFlow 1's graph. Collective when it
    runs.

    Raises:
        UnsupportedError: in eager mode and with other backends, where no graph holds the variables.
    """
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        from horovod.tensorflow import functions

        if not tf.executing_eagerly():
            return functions.broadcast_global_variables(root_rank)
        fact = "this is eager mode"
        other = f", or horovod.tensorflow.broadcast_variables(model.variables, {root_rank})"
    else:
        fact, other = f"Keras runs on {keras.backend.backend()}", ""
    raise UnsupportedError(
        f"hvd.broadcast_global_variables() needs a graph of TensorFlow 1; {fact}. Use "
        f"hvd.callbacks.BroadcastGlobalVariablesCallback({root_rank}){other} instead."
    )
