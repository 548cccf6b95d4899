"""Collectives on plain values: numbers, arrays and tensors in, NumPy out. For metrics and other small things outside of
the training step."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np

from horovod._core import numpy_adapter, reduce_ops
from horovod._core.collectives import Collectives
from horovod._core.compression import Compressor
from horovod._core.errors import HorovodError
from horovod._core.reduce_ops import Average
from horovod.keras.compression import Compression, for_arrays
from horovod.keras.flavour import flavour
from horovod.keras.installed import keras

__all__ = ["allgather", "allreduce", "broadcast", "broadcast_global_variables", "reducescatter"]

_collectives = Collectives(numpy_adapter.adapter)


def _array(value: Any) -> Any:
    return np.array(flavour.to_numpy(value), order="C")


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
        value: a number, array or tensor, of the same dtype and shape on all ranks.
        name: identity of the operation, equal on all ranks; None: counted.
        average: deprecated; True = Average, False = Sum.
        prescale_factor, postscale_factor: multiply before and after.
        op: hvd.Average (default), Sum or Adasum.
        compression: hvd.Compression.none, fp16 or bf16.

    Returns:
        A NumPy array, or scalar.

    Raises:
        ValueError: op and average are both given.
    """
    array = _array(value)
    chosen = reduce_ops.resolve(op, average)
    return _collectives.allreduce(
        array, None, name, for_arrays(compression), chosen, prescale_factor, postscale_factor
    )[()]


def allgather(value: Any, name: Optional[str] = None) -> Any:
    """Joins the values of all ranks along the first dimension. Collective.

    Args:
        value: an array or tensor of at least one dimension; the first may differ between the ranks.
        name: identity of the operation, equal on all ranks; None: counted.

    Returns:
        A NumPy array.
    """
    return _collectives.allgather(_array(value), name)


def broadcast(value: Any, root_rank: int, name: Optional[str] = None) -> Any:
    """The value of one rank, on all ranks. Collective.

    Args:
        value: a number, array or tensor, of the same dtype and shape on all ranks.
        root_rank: global rank that has the value.
        name: identity of the operation, equal on all ranks; None: counted.

    Returns:
        A NumPy array, or scalar.
    """
    return _collectives.broadcast(_array(value), root_rank, name)[()]


def reducescatter(value: Any, name: Optional[str] = None, op: int = Average) -> Any:
    """Combines the values of all ranks and leaves each rank its block of rows. Collective.

    Args:
        value: an array or tensor of at least one dimension, of the same dtype and shape on all ranks.
        name: identity of the operation, equal on all ranks; None: counted.
        op: hvd.Average or hvd.Sum.

    Returns:
        A NumPy array: the rows of this rank.
    """
    return _collectives.reducescatter(_array(value), name, op=op)


class _NoGlobalVariablesError(HorovodError, RuntimeError):
    """A function of TensorFlow 1's graphs was called where there are none."""


def broadcast_global_variables(root_rank: int) -> Any:
    """The operation that assigns the root's values to all global variables of TensorFlow 1's graph. Collective when it
    runs.

    Raises:
        RuntimeError: in eager mode and with other backends, where no graph holds the variables.
    """
    if keras.backend.backend() == "tensorflow":
        from horovod.tensorflow import functions

        return functions.broadcast_global_variables(root_rank)
    raise _NoGlobalVariablesError(
        f"hvd.broadcast_global_variables() needs a graph of TensorFlow 1; Keras runs on {keras.backend.backend()}. Use "
        f"hvd.callbacks.BroadcastGlobalVariablesCallback({root_rank}) instead."
    )
