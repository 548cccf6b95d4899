"""How the calls of a random program are made in TensorFlow, see `ways`.

Calls that wait are eager. Those that are under way at once are in one `tf.function`, one graph of TensorFlow 1, or one
function compiled with XLA.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable

import numpy as np
import tensorflow as tf
from random_programs.programs import Call, Together
from random_programs.ways import Outcome, arguments, called
from tensorflow_worker import for_tensorflow, from_tensorflow, tensorflow_target

import horovod.tensorflow as hvd


class InTensorFlow:
    """TensorFlow."""

    def __init__(self) -> None:
        self.target = tensorflow_target()
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.get_logger().setLevel("ERROR")  # functions are made in loops here, which it warns of

    def blocking(self, call: Call, rank: int, process_set: Any) -> Outcome:
        tensors = _holders(call, rank)
        return _outcome(call, _run(call, tensors, rank, process_set), tensors)

    def together(self, step: Together, rank: int, sets: dict[int, Any], between: Callable[[], None]) -> list[Outcome]:
        own = [step.calls[n] for n in step.start_order(rank)]
        if not own:
            return []
        if step.way == "graph":
            return _in_graph(own, rank, sets)

        @tf.function(jit_compile=step.way == "jit")
        def function(tensors: list[list[Any]]) -> list[Any]:
            return [_run(call, mine, rank, sets[call.process_set]) for call, mine in zip(own, tensors)]

        held = [_holders(call, rank) for call in own]
        return [_outcome(call, result, mine) for call, result, mine in zip(own, function(held), held)]

    def at_once(self, calls: Sequence[Call], rank: int, process_set: Any) -> list[Outcome]:
        return [self.blocking(call, rank, process_set) for call in calls]


def _in_graph(own: list[Call], rank: int, sets: dict[int, Any]) -> list[Outcome]:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        feeds, outputs = {}, []
        for call in own:
            tensors = []
            for value in _values(call, rank):
                fed = tf.compat.v1.placeholder(value.dtype)
                feeds[fed] = value
                in_place = call.in_place and call.kind == "broadcast"
                held = tf.compat.v1.Variable(fed, use_resource=True, validate_shape=False) if in_place else fed
                tensors.append(held)
            outputs.append(_run(call, tensors, rank, sets[call.process_set]))
        session.run(tf.compat.v1.global_variables_initializer(), feeds)
        results = session.run(outputs, feeds)
    return [_outcome(call, result, []) for call, result in zip(own, results)]


def _values(call: Call, rank: int) -> list[Any]:
    indices = [call.indices(rank)] if call.kind == "sparse" else []
    return [for_tensorflow(array) for array in [*call.inputs(rank), *indices]]


def _holders(call: Call, rank: int) -> list[Any]:
    hold = tf.Variable if call.in_place else tf.constant
    return [hold(value) for value in _values(call, rank)]


def _run(call: Call, tensors: list[Any], rank: int, process_set: Any) -> Any:
    """The results, eager or symbolic."""
    given = arguments(hvd, call, rank, process_set, True)
    if call.kind == "sparse":
        values, indices = tensors
        shape = tf.constant([call.extent, *call.parts[0].tail], tf.int64)
        return tf.convert_to_tensor(hvd.allreduce(tf.IndexedSlices(values, indices, shape), **given))
    if call.in_place:
        return tf.convert_to_tensor(hvd.broadcast_(tensors, **given)[0])
    return getattr(hvd, called(call, False))(tensors if call.grouped else tensors[0], **given)


def _outcome(call: Call, result: Any, tensors: list[Any]) -> Outcome:
    received: list[int] = []
    if call.splits is not None:
        result, splits = result
        received = [int(rows) for rows in np.asarray(splits)]
    results = [np.array(from_tensorflow(each)) for each in (result if call.grouped else [result])]
    return Outcome(results, received, [np.array(from_tensorflow(each)) for each in tensors[: len(results)]])
