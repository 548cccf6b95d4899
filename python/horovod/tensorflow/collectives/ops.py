"""The collectives of `horovod.tensorflow`: public signatures, eager, in `tf.function` and in graphs of TensorFlow 1.

Each makes one operator of the core (`operators`). Gradients are in `autograd`. Failures are TensorFlow's own
errors: FailedPreconditionError when the ranks disagree, AbortedError when a rank died or the engine stops,
InvalidArgumentError for what an operator finds wrong when it runs; what can be seen in Python is a ValueError.

Arguments that all have in common: `process_set` are the ranks that take part; `name` the identity of the operation,
equal on all ranks, at most once at a time in a graph; `ignore_name_scope` leaves enclosing name scopes out of that
identity. `device_dense` and `device_sparse` name the device on which the operator is placed, "" = TensorFlow's choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional, Union

import tensorflow as tf

from horovod._core.errors import UnsupportedError
from horovod._core.life import context, process_sets, session
from horovod._core.life.engine_port import ALLGATHER, ALLREDUCE, ALLTOALL, BROADCAST, REDUCESCATTER
from horovod._core.life.process_sets import ProcessSet, global_process_set
from horovod._core.operations import reduce_ops
from horovod._core.operations.reduce_ops import Average, ReduceOp
from horovod._core.tensors.compression import Compressor, compressed
from horovod.tensorflow.adapter import as_tensors
from horovod.tensorflow.as_written import as_written
from horovod.tensorflow.collectives import library, operators, xla
from horovod.tensorflow.collectives.operators import Naming, Reduction
from horovod.tensorflow.compression import Compression

__all__ = [
    "allgather", "allreduce", "alltoall", "broadcast", "broadcast_", "grouped_allgather", "grouped_allreduce",
    "grouped_reducescatter", "join", "local_rank_op", "local_size_op", "process_set_included_op", "rank_op",
    "reducescatter", "size_op",
]  # fmt: skip


@as_written
def allreduce(
    tensor: Any,
    average: Optional[bool] = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Compressor = Compression.none,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
) -> Any:
    """Combines the tensors of all ranks. Collective. Differentiable.

    Args:
        tensor: dense, of the same dtype and shape on all ranks; or `tf.IndexedSlices`, whose values and indices are
            gathered from all ranks.
        average: deprecated; True = Average, False = Sum.
        compression: of dense tensors on their way.
        op: hvd.Average (default), Sum, Min, Max, Product or Adasum; of IndexedSlices only Average and Sum.
        prescale_factor, postscale_factor: multiply before and after; not for IndexedSlices.

    Returns:
        A tensor of the same dtype and shape, or IndexedSlices in which indices may repeat; averages of integers among
        these have the floating type that TensorFlow's division gives.

    Raises:
        NotImplementedError: IndexedSlices with another op, or with factors.
    """
    chosen = reduce_ops.resolve(op, average)
    if isinstance(tensor, tf.IndexedSlices):
        if prescale_factor != 1.0 or postscale_factor != 1.0:
            raise UnsupportedError("Factors do not apply to tf.IndexedSlices; leave them at 1.0, or use dense tensors.")
        return _sparse_allreduce(tensor, chosen, device_sparse, name, process_set, ignore_name_scope)
    reduction = Reduction(chosen, prescale_factor, postscale_factor, process_set)
    with operators.placed(device_dense):
        (result,) = _allreduce_dense([tensor], compression, name, reduction, ignore_name_scope)
    return result


@as_written
def grouped_allreduce(
    tensors: Sequence[Any],
    average: Optional[bool] = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Compressor = Compression.none,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    name: Optional[str] = None,
) -> list[Any]:
    """As `allreduce`, for a list of tensors that is negotiated as one unit. Collective. IndexedSlices among them go
    each by itself.

    Returns:
        The results, in the order of `tensors`.
    """
    tensors = list(tensors)
    chosen = reduce_ops.resolve(op, average)
    results: list[Any] = [None] * len(tensors)
    for index, tensor in enumerate(tensors):
        if isinstance(tensor, tf.IndexedSlices):
            own_name = f"{name}.{index}" if name else None
            results[index] = allreduce(
                tensor, device_sparse=device_sparse, op=chosen, prescale_factor=prescale_factor,
                postscale_factor=postscale_factor, name=own_name, process_set=process_set,
                ignore_name_scope=ignore_name_scope,
            )  # fmt: skip
    dense = [index for index, tensor in enumerate(tensors) if not isinstance(tensor, tf.IndexedSlices)]
    reduction = Reduction(chosen, prescale_factor, postscale_factor, process_set)
    with operators.placed(device_dense):
        reduced = _allreduce_dense([tensors[i] for i in dense], compression, name, reduction, ignore_name_scope)
    for index, result in zip(dense, reduced):
        results[index] = result
    return results


def _allreduce_dense(
    tensors: Sequence[Any], compression: Compressor, name: Optional[str], reduction: Reduction, ignore_scope: bool
) -> list[Any]:
    tensors = operators.as_inputs(ALLREDUCE, tensors, name, reduction.process_set)
    pairs = compressed(tensors, compression)
    sent = [pair[0] for pair in pairs]
    results = operators.allreduce(sent, Naming("HorovodAllreduce", name, sent, ignore_scope), reduction)
    return [compression.decompress(result, ctx) for result, (_, ctx) in zip(results, pairs)]


def allreduce_each(
    tensors: Sequence[Any], compression: Compressor, naming: operators.NamingEach, reduction: Reduction
) -> list[Any]:
    """Combines dense tensors, each an operation of its own, by one operator of a graph. Collective."""
    pairs = compressed(tensors, compression)
    results = operators.allreduce([pair[0] for pair in pairs], naming, reduction)
    return [compression.decompress(result, ctx) for result, (_, ctx) in zip(results, pairs)]


def _sparse_allreduce(
    tensor: tf.IndexedSlices,
    op: ReduceOp,
    device: str,
    name: Optional[str],
    process_set: ProcessSet,
    ignore_scope: bool,
) -> tf.IndexedSlices:
    if not op.row.linear:
        raise UnsupportedError(
            f"allreduce of tf.IndexedSlices supports op=hvd.Average and hvd.Sum only. Received: {op}. Use "
            "sparse_as_dense=True, or tf.convert_to_tensor."
        )
    with operators.placed(device):
        parts = as_tensors([tensor.values, tensor.indices])
        values, indices = operators.allgather(parts, Naming("HorovodAllgather", name, parts, ignore_scope), process_set)
        if op.row.divides:
            # Integers become floating numbers, as of every division of TensorFlow's; averages of dense ones do not.
            values = values / tf.cast(size_op(operators.set_number(process_set)), values.dtype)
    return tf.IndexedSlices(values, indices, dense_shape=tensor.dense_shape)


@as_written
def allgather(
    tensor: Any,
    name: Optional[str] = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Joins the tensors of all ranks along the first dimension. Collective. Differentiable.

    Args:
        tensor: of at least one dimension; the first may differ between the ranks.

    Returns:
        All rows, in the order of the ranks.
    """
    return grouped_allgather([tensor], name, ignore_name_scope, process_set)[0]


@as_written
def grouped_allgather(
    tensors: Sequence[Any],
    name: Optional[str] = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """As `allgather`, for a list of tensors that is negotiated as one unit. Collective."""
    tensors = operators.as_inputs(ALLGATHER, tensors, name, process_set)
    return operators.allgather(tensors, Naming("HorovodAllgather", name, tensors, ignore_name_scope), process_set)


@as_written
def broadcast(
    tensor: Any,
    root_rank: int,
    name: Optional[str] = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Broadcasts the tensor of one rank to all ranks. Collective. Differentiable.

    Args:
        tensor: of the same dtype and shape on all ranks.
        root_rank: global rank that has the values.
    """
    tensors = operators.as_inputs(BROADCAST, [tensor], name, process_set)
    naming = Naming("HorovodBroadcast", name, tensors, ignore_name_scope)
    return operators.broadcast(tensors, root_rank, naming, process_set)[0]


@as_written
def broadcast_(
    variables: Sequence[Any], root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Assigns the root's values to variables, as one unit. Collective.

    Args:
        variables: `tf.Variable`s, resource and reference variables; or Keras 3 variables that hold one.
        root_rank: global rank that has the values.

    Returns:
        The variables' assignments: in a graph the operations to run, in eager mode the variables.
    """
    targets = [tensorflow_variable(variable) for variable in variables]
    values = [tf.convert_to_tensor(target) for target in targets]
    received = operators.broadcast(values, root_rank, Naming("HorovodBroadcast", name, values), process_set)
    return [target.assign(value) for target, value in zip(targets, received)]


def tensorflow_variable(variable: Any) -> Any:
    """The `tf.Variable` inside a Keras 3 variable; any other variable as it is."""
    if isinstance(variable, tf.Variable):
        return variable
    inner = getattr(variable, "value", None)
    return inner if isinstance(inner, tf.Variable) else variable


@as_written
def alltoall(
    tensor: Any,
    splits: Optional[Any] = None,
    name: Optional[str] = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Union[Any, tuple[Any, Any]]:
    """Sends a block of rows to each rank and gathers the blocks sent here. Collective. Differentiable.

    Args:
        tensor: of at least one dimension.
        splits: rows for each member, integers; None = equal parts.

    Returns:
        The rows received, in the order of the ranks; with `splits` given, also how many came from each (int32).
    """
    (tensor,) = operators.as_inputs(ALLTOALL, [tensor], name, process_set)
    naming = Naming("HorovodAlltoall", name, [tensor], ignore_name_scope)
    output, received_splits = operators.alltoall(tensor, splits, naming, process_set)
    return output if splits is None else (output, received_splits)


@as_written
def reducescatter(
    tensor: Any,
    device_dense: str = "",
    compression: Compressor = Compression.none,
    op: int = Average,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """Combines the tensors of all ranks and leaves each rank its block of rows. Collective. Differentiable.

    Args:
        tensor: of at least one dimension, of the same dtype and shape on all ranks.
        compression: of the tensors on their way.
        op: hvd.Average or Sum.
        prescale_factor, postscale_factor: multiply before and after.

    Returns:
        The rows of this rank; the first ranks have one more if the rows cannot be divided evenly.
    """
    reduction = Reduction(reduce_ops.resolve(op, None), prescale_factor, postscale_factor, process_set)
    with operators.placed(device_dense):
        return _reducescatter([tensor], compression, name, reduction, ignore_name_scope)[0]


@as_written
def grouped_reducescatter(
    tensors: Sequence[Any],
    device_dense: str = "",
    compression: Compressor = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: Optional[str] = None,
    ignore_name_scope: bool = False,
) -> list[Any]:
    """As `reducescatter`, for a list of tensors that is negotiated as one unit. Collective."""
    reduction = Reduction(reduce_ops.resolve(op, None), prescale_factor, postscale_factor, process_set)
    with operators.placed(device_dense):
        return _reducescatter(tensors, compression, name, reduction, ignore_name_scope)


def _reducescatter(
    tensors: Sequence[Any], compression: Compressor, name: Optional[str], reduction: Reduction, ignore_scope: bool
) -> list[Any]:
    tensors = operators.as_inputs(REDUCESCATTER, tensors, name, reduction.process_set)
    pairs = compressed(tensors, compression)
    sent = [pair[0] for pair in pairs]
    results = operators.reducescatter(sent, Naming("HorovodReducescatter", name, sent, ignore_scope), reduction)
    return [compression.decompress(result, ctx) for result, (_, ctx) in zip(results, pairs)]


@as_written
def join() -> Any:
    """Declares that this rank has no more data, and waits for all ranks to do so; it takes part in the others'
    allreduces with zeros meanwhile. Collective, over all ranks.

    Returns:
        The rank that joined last, an int32 scalar; -1 if none did.
    """
    session.note_join()
    return library.loaded().horovod_join(blocking=tf.executing_eagerly())


def _constant(value: int) -> Any:
    """An answer within XLA, which knows no operators of others: the one of the time of tracing."""
    return tf.constant(int(value), tf.int32)


@as_written
def rank_op(name: Optional[str] = None) -> Any:
    """`hvd.rank()` when the operator runs, an int32 scalar."""
    return _constant(context.rank()) if xla.compiling() else library.loaded().horovod_rank(name=name)


@as_written
def local_rank_op(name: Optional[str] = None) -> Any:
    """`hvd.local_rank()` when the operator runs, an int32 scalar."""
    return _constant(context.local_rank()) if xla.compiling() else library.loaded().horovod_local_rank(name=name)


@as_written
def size_op(process_set_id: int = 0, name: Optional[str] = None) -> Any:
    """The number of ranks of a process set when the operator runs, an int32 scalar."""
    if xla.compiling():
        return _constant(len(process_sets.ids_and_ranks()[process_set_id]))
    return library.loaded().horovod_size(process_set_id=process_set_id, name=name)


@as_written
def local_size_op(name: Optional[str] = None) -> Any:
    """`hvd.local_size()` when the operator runs, an int32 scalar."""
    return _constant(context.local_size()) if xla.compiling() else library.loaded().horovod_local_size(name=name)


@as_written
def process_set_included_op(process_set_id: int = 0, name: Optional[str] = None) -> Any:
    """1 if this rank is in the process set when the operator runs, else 0, an int32 scalar."""
    if xla.compiling():
        return _constant(context.rank() in process_sets.ids_and_ranks()[process_set_id])
    return library.loaded().horovod_process_set_included(process_set_id=process_set_id, name=name)
