"""The gradients of the operators, as TensorFlow looks them up: eager, in `tf.function` and in graphs.

The conventions are those of the other frameworks: what an average distributes it takes back as an average; a sum's
gradient is the sum of the ranks' gradients. Imported for its registrations only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable

import tensorflow as tf

from horovod._core.errors import UnsupportedError
from horovod._core.life import process_sets, session
from horovod._core.operations.reduce_ops import Average, Gradient, ReduceOp, Sum
from horovod.tensorflow.collectives import xla
from horovod.tensorflow.collectives.dispatch import GRADIENTS, launch

__all__: list[str] = []

_Gradient = Callable[..., list[Any]]
_Factors = tuple[str, str]


def _registered(operator: str) -> Callable[[_Gradient], _Gradient]:
    """Registers with TensorFlow, and for the calls inside XLA."""

    def register(function: _Gradient) -> _Gradient:
        tf.RegisterGradient(operator)(function)
        GRADIENTS[operator] = function
        return function

    return register


def _common(op: Any, more: str = "") -> dict[str, Any]:
    """Attributes of the gradient's operation. It is called after the forward one, if that has a name beside its
    node's."""
    given: str = op.get_attr("tensor_name").decode()
    return {
        "tensor_name": f"{given}.backward{more}" if given else "",
        "process_set_id": op.get_attr("process_set_id"),
        "blocking": tf.executing_eagerly(),
    }


def _reduced(op: Any, grads: Any, how: ReduceOp, factors: _Factors = ("1", "1"), more: str = "") -> list[Any]:
    attributes = {"reduce_op": int(how), "prescale_factor": factors[0], "postscale_factor": factors[1]}
    return launch("HorovodAllreduce", grads, {**_common(op, more), **attributes}, "HorovodAllreduce")


def _wide(tensor: Any) -> Any:
    return tf.cast(tensor, tf.float32) if tensor.dtype.size < 4 else tensor


def _factors(op: Any) -> _Factors:
    """(prescale, postscale), as the operator has them."""
    return op.get_attr("prescale_factor").decode(), op.get_attr("postscale_factor").decode()


def _members(op: Any) -> list[int]:
    return list(process_sets.ids_and_ranks()[op.get_attr("process_set_id")])


@_registered("HorovodAllreduce")
def _allreduce(op: Any, *grads: Any) -> list[Any]:
    how = ReduceOp(op.get_attr("reduce_op"))
    if how.row.gradient is Gradient.HOLDERS:
        return _extremum_gradient(op, grads, how)
    if not how.row.linear:
        raise UnsupportedError(
            f"allreduce with op=hvd.{how.name} has no gradient; use Average, Sum, Min or Max, or tf.stop_gradient."
        )
    return _reduced(op, grads, how, _factors(op))


def _extremum_gradient(op: Any, grads: Sequence[Any], how: ReduceOp) -> list[Any]:
    """Goes to the ranks that hold the extremum, in equal parts if there are several."""
    prescale, postscale = map(float, _factors(op))
    own, extrema = op.inputs, op.outputs
    if prescale != 1 or postscale != 1:
        own = [_wide(tensor) * prescale for tensor in own]
        extrema = _reduced(op, own, how, more=".extremum")
    wide = [_wide(grad) for grad in grads]
    held = [tf.cast(tf.equal(mine, best), grad.dtype) for mine, best, grad in zip(own, extrema, wide)]
    both = _reduced(op, [*wide, *held], Sum)
    shares = [total * mine / holders for total, mine, holders in zip(both, held, both[len(held) :])]
    return [tf.cast(share * (prescale * postscale), grad.dtype) for share, grad in zip(shares, grads)]


@_registered("HorovodAllgather")
def _allgather(op: Any, *grads: Any) -> list[Any]:
    total = _reduced(op, grads, Average)
    before = _members(op).index(session.require().rank)
    if xla.compiling():  # the ranks have the same number of rows there
        blocks = [tensor.shape[0] for tensor in op.inputs]
        return [grad[before * rows : (before + 1) * rows] for grad, rows in zip(total, blocks)]
    # This rank's rows begin behind those of the ranks before it.
    own = [tf.shape(tensor)[:1] for tensor in op.inputs]
    counts = launch("HorovodAllgather", own, _common(op, ".rows"), "HorovodAllgather")
    starts = [tf.reduce_sum(count[:before]) for count in counts]
    results = [grad[start : start + rows[0]] for grad, start, rows in zip(total, starts, own)]
    return [tf.ensure_shape(result, tensor.shape) for result, tensor in zip(results, op.inputs)]


@_registered("HorovodBroadcast")
def _broadcast(op: Any, *grads: Any) -> list[Any]:
    total = _reduced(op, grads, Average)
    if session.require().rank == op.get_attr("root_rank"):
        return total
    # Zeros that wait for the reduction: a graph leaves out what no result needs, and the root would wait for this rank.
    with tf.control_dependencies(total):
        return [tf.identity(tf.zeros_like(grad)) for grad in total]


@_registered("HorovodAlltoall")
def _alltoall(op: Any, grad: Any, _: Any) -> list[Any]:
    # What came from each goes back there. XLA knows equal parts only, which are no splits.
    splits = op.inputs[1] if xla.compiling() else op.outputs[1]
    back, _ = launch("HorovodAlltoall", [grad, splits], _common(op), "HorovodAlltoall")
    tensor = op.inputs[0]
    if op.inputs[1].shape.num_elements() == 0:
        return [tf.ensure_shape(back, tensor.shape), None]
    # Rows beyond the splits went nowhere.
    missing = tf.shape(tensor)[:1] - tf.shape(back)[:1]
    unsent = tf.zeros(tf.concat([missing, tf.shape(tensor)[1:]], 0), back.dtype)
    return [tf.ensure_shape(tf.concat([back, unsent], 0), tensor.shape), None]


@_registered("HorovodReducescatter")
def _reducescatter(op: Any, *grads: Any) -> list[Any]:
    prescale, postscale = map(float, _factors(op))
    scale = prescale * postscale
    gathered = launch("HorovodAllgather", grads, _common(op), "HorovodAllgather")
    results = [tf.cast(scale, grad.dtype) * grad if scale != 1.0 else grad for grad in gathered]
    if not ReduceOp(op.get_attr("reduce_op")).row.divides:  # a sum's counts once for every rank, an average's once
        results = [grad * tf.cast(len(_members(op)), grad.dtype) for grad in results]
    return [tf.ensure_shape(grad, tensor.shape) for grad, tensor in zip(results, op.inputs)]
