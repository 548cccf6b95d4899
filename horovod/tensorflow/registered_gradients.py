"""The gradients of the operators, as TensorFlow looks them up: eager, in `tf.function` and in graphs.

The conventions are those of the other frameworks: what an average distributes it takes back as an average; a sum's
gradient is the sum of the ranks' gradients. Imported for its registrations only.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod._core.errors import UnsupportedError
from horovod._core.reduce_ops import Average, Max, Min, ReduceOp, Sum
from horovod.tensorflow.library import operators

__all__: list[str] = []


def _name(op: Any) -> str:
    """What the gradient's operation is called: after the forward one, which in a graph has a name of its own."""
    given: str = op.get_attr("tensor_name").decode()
    return f"{given}.backward" if given else ""


def _size(process_set: int, like: Any) -> Any:
    return tf.cast(operators().horovod_size(process_set_id=process_set), like.dtype)


def _common(op: Any) -> dict[str, Any]:
    return {
        "tensor_name": _name(op),
        "process_set_id": op.get_attr("process_set_id"),
        "blocking": tf.executing_eagerly(),
    }


def _reduced(op: Any, grads: Any, how: ReduceOp, **factors: Any) -> list[Any]:
    return list(operators().horovod_allreduce(tensors=list(grads), reduce_op=int(how), **_common(op), **factors))


@tf.RegisterGradient("HorovodAllreduce")
def _allreduce(op: Any, *grads: Any) -> list[Any]:
    how = ReduceOp(op.get_attr("reduce_op"))
    if how in (Min, Max):
        # The rank whose value won gets the sum of the gradients; equal values share.
        total = _reduced(op, grads, Sum)
        pairs = zip(op.inputs, op.outputs, total)
        return [tf.where(tf.equal(mine, best), grad, tf.zeros_like(grad)) for mine, best, grad in pairs]
    if how not in (Average, Sum):
        raise UnsupportedError(
            f"allreduce with op=hvd.{how.name} has no gradient; use Average, Sum, Min or Max, or tf.stop_gradient."
        )
    return _reduced(
        op,
        grads,
        how,
        prescale_factor=op.get_attr("prescale_factor"),
        postscale_factor=op.get_attr("postscale_factor"),
    )


@tf.RegisterGradient("HorovodAllgather")
def _allgather(op: Any, *grads: Any) -> list[Any]:
    common = _common(op)
    total = _reduced(op, grads, Average)
    # Where this rank's rows begin: the rows of the ranks before it.
    rows = [tf.shape(tensor, out_type=tf.int64)[:1] for tensor in op.inputs]
    name = common.pop("tensor_name")
    counts = operators().horovod_allgather(tensors=rows, tensor_name=name and f"{name}.rows", **common)
    before = [_before(op, count) for count in counts]
    return [grad[start : start + own[0]] for grad, start, own in zip(total, before, rows)]


def _before(op: Any, counts: Any) -> Any:
    """The sum of the counts of the members before this one."""
    number = op.get_attr("process_set_id")
    from horovod._core import process_sets, session

    rank = session.require().rank
    ranks = process_sets.ids_and_ranks()[number]
    return tf.reduce_sum(counts[: list(ranks).index(rank)])


@tf.RegisterGradient("HorovodBroadcast")
def _broadcast(op: Any, *grads: Any) -> list[Any]:
    total = _reduced(op, grads, Average)
    is_root = tf.equal(operators().horovod_rank(), op.get_attr("root_rank"))
    return [tf.where(is_root, grad, tf.zeros_like(grad)) for grad in total]


@tf.RegisterGradient("HorovodAlltoall")
def _alltoall(op: Any, grad: Any, _: Any) -> list[Any]:
    back = operators().horovod_alltoall(tensor=grad, splits=op.outputs[1], **_common(op)).output
    # Rows beyond the splits went nowhere.
    tensor = op.inputs[0]
    missing = tf.shape(tensor)[:1] - tf.shape(back)[:1]
    unsent = tf.zeros(tf.concat([missing, tf.shape(tensor)[1:]], 0), back.dtype)
    return [tf.ensure_shape(tf.concat([back, unsent], 0), tensor.shape), None]


@tf.RegisterGradient("HorovodReducescatter")
def _reducescatter(op: Any, *grads: Any) -> list[Any]:
    scale = float(op.get_attr("prescale_factor")) * float(op.get_attr("postscale_factor"))
    gathered = operators().horovod_allgather(tensors=list(grads), **_common(op))
    results = [tf.cast(scale, grad.dtype) * grad if scale != 1.0 else grad for grad in gathered]
    if op.get_attr("reduce_op") == Sum:  # counts once for every rank, an average's once
        results = [grad * _size(op.get_attr("process_set_id"), grad) for grad in results]
    return [tf.ensure_shape(grad, tensor.shape) for grad, tensor in zip(results, op.inputs)]
