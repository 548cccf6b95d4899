"""Which gradients of a graph one operator stands for, each still an operation of its own to the other ranks.

An operator that is done on another thread wakes two threads: the engine's and one of TensorFlow's. For a small gradient
that takes longer than its reduction. So small ones share an operator, up to a megabyte. Where no core is left for the
engine's thread all of them do, because a reduction during the pass only delays the computation. If a reduction has one
operator, that waits for a moment in TensorFlow's thread. Used by `reducer`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import tensorflow as tf

from horovod._core.life import session
from horovod._core.tensors.compression import Compressor
from horovod._core.training.overlap import MOST_GATHERED_BYTES, SMALL_BYTES, overlap_can_pay
from horovod.tensorflow.collectives import ops, xla
from horovod.tensorflow.collectives.operators import NamingEach, Reduction

__all__ = ["Unit", "gather", "reduce_each"]

_LAST: Final = "_horovod_last_wait"  # attribute of a graph: a result of its last operator that waits


@dataclass
class Unit:
    """What one operator reduces.

    Args:
        name: of the operation, or of the group; with `names`, of neither.
        members: the places of the gradients.
        names: of the operations that the operator stands for, by member; empty: it is one operation.
        waits: see `NamingEach`.
    """

    name: str
    members: list[int]
    names: Sequence[str] = ()
    waits: bool = False


def gather(units: Sequence[tuple[str, list[int]]], gradients: Sequence[Any]) -> list[Unit]:
    """One unit for each operator. Local.

    Args:
        units: (name, members) of each operation.
        gradients: by place.
    """
    if not units or not _may_gather():
        return [Unit(*unit) for unit in units]
    overlaps = overlap_can_pay(session.require())
    result: list[Unit] = []
    filling: list[tuple[str, int]] = []
    nbytes = 0

    def close() -> None:
        if filling:
            result.append(Unit("gradients", [i for _, i in filling], [name for name, _ in filling]))
        filling.clear()

    for name, members in units:
        gradient = gradients[members[0]]
        size = _bytes(gradient) if overlaps else 0
        # Messages about other types name the operator.
        if len(members) > 1 or not gradient.dtype.is_floating or size >= SMALL_BYTES:
            result.append(Unit(name, members))
            continue
        filling.append((name, members[0]))
        nbytes += size
        if overlaps and nbytes > MOST_GATHERED_BYTES:
            close()
            nbytes = 0
    close()
    result[0].waits = len(result) == 1
    return result


def reduce_each(tensors: Sequence[Any], unit: Unit, compression: Compressor, reduction: Reduction) -> list[Any]:
    """The tensors of a unit that has names, reduced. Collective when it runs."""
    naming = NamingEach(unit.names, unit.name, unit.waits)
    graph = tf.compat.v1.get_default_graph()
    # Two that wait run in the same order on all ranks.
    before = getattr(graph, _LAST, None) if unit.waits else None
    with tf.control_dependencies([] if before is None else [before]):
        reduced = ops.allreduce_each(tensors, compression, naming, reduction)
    if unit.waits:
        setattr(graph, _LAST, reduced[0])
    return reduced


def _may_gather() -> bool:
    # Programs of TensorFlow 1 may run some operators of a graph and leave out others. On a GPU the reduction is ordered
    # by a stream, behind everything that has been put on it.
    return not (
        tf.executing_eagerly()
        or xla.compiling()
        or not tf.compat.v1.executing_eagerly_outside_functions()
        or tf.config.get_visible_devices("GPU")
    )


def _bytes(gradient: Any) -> int:
    """As far as it is known; else it counts as large."""
    elements = gradient.shape.num_elements()
    return SMALL_BYTES if elements is None else elements * gradient.dtype.size
