"""One operator of the core per call: checks that this rank can make, names, and the way from arguments to attributes.

Used by `ops`, which holds the public signatures, and by `registered_gradients`. In a graph an operation's identity is
its node's name; in eager mode the name given, or the operator's own: eager calls come one after the other, in the same
order on all ranks.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import Any, Optional

import tensorflow as tf

from horovod._core import dtypes, reduce_ops, session, submission
from horovod._core.engine_port import ALLGATHER, ALLREDUCE, ALLTOALL, BROADCAST, OP_NAMES, REDUCESCATTER
from horovod._core.errors import HorovodError, InvalidArgumentError
from horovod._core.process_sets import ProcessSet
from horovod._core.reduce_ops import ReduceOp
from horovod.tensorflow.adapter import adapter
from horovod.tensorflow.launching import launch

__all__ = ["allgather", "allreduce", "alltoall", "broadcast", "plain_name", "reducescatter", "set_number"]


def set_number(process_set: ProcessSet) -> int:
    """The id of a process set that this rank belongs to."""
    return submission.member_set(session.require(), process_set)


def plain_name(text: str) -> str:
    """The text with everything replaced that may not stand in a node's name."""
    return re.sub(r"[^a-zA-Z0-9_.\\/-]", "_", text)


class Naming:
    """How an operation is called.

    Args:
        operator: "HorovodAllreduce", ...
        name: as the user gave it, or None.
        tensors: the inputs; a node without a name is named after the first.
        ignore_scope: the name that is negotiated leaves out enclosing name scopes.
    """

    def __init__(self, operator: str, name: Optional[str], tensors: Sequence[Any], ignore_scope: bool = False) -> None:
        eager = tf.executing_eagerly()
        default = operator
        if not eager and tensors:
            default = f"{operator}_{plain_name(tensors[0].name)}"
        self.node = plain_name(name) if name else default
        # An empty name is the node's; in eager mode nodes have none of their own. An eager operation's thread waits.
        negotiated = (name or "") if eager else (self.node if ignore_scope else "")
        self.attributes = {"tensor_name": negotiated, "blocking": eager}
        self.known = name or (default if eager else self.node)


@contextlib.contextmanager
def _telling_others(op_type: int, naming: Naming, process_set: ProcessSet, n: int) -> Iterator[str]:
    """An error in the body is told to the other members, who are at the same call now; but not while a function is
    traced: then they trace it too, and fail alike. Yields how messages call the operation."""
    try:
        yield f"{OP_NAMES[op_type]} '{naming.known}'"
    except HorovodError as error:
        if not tf.executing_eagerly():
            raise
        names = [submission.full_name(op_type, naming.known)]
        if n > 1:
            names = submission.member_names(names[0], n)
        current = session.require()
        submission.refuse(current, op_type, submission.member_set(current, process_set), names, error)


def _require_types(what: str, tensors: Sequence[Any]) -> None:
    for tensor in {tensor.dtype: tensor for tensor in tensors}.values():
        if adapter.dtype(tensor) < 0:
            raise InvalidArgumentError(
                f"{what}: dtype {adapter.dtype_name(tensor)} is not supported. Supported are "
                f"{', '.join(dtypes.NAMES)}; cast the tensor first."
            )


def _require_rows(what: str, tensors: Sequence[Any]) -> None:
    for tensor in tensors:
        if tensor.shape.rank == 0:
            raise InvalidArgumentError(
                f"{what} needs a tensor of at least one dimension. Received a scalar; reshape it to one element."
            )


def _factor(what: str, value: Any) -> str:
    """A factor as the operators take it: a text, because attributes hold no doubles."""
    try:
        return repr(float(value))
    except (TypeError, ValueError):
        raise InvalidArgumentError(f"{what} must be a number. Received: {value!r}.") from None


class Reduction:
    """What an allreduce or reducescatter does beside moving data.

    Args:
        op: how values are combined.
        prescale, postscale: factors before and after.
        process_set: the ranks that take part.
    """

    def __init__(self, op: ReduceOp, prescale: Any, postscale: Any, process_set: ProcessSet) -> None:
        self.op = op
        self.prescale = prescale
        self.postscale = postscale
        self.process_set = process_set

    def attributes(self, what: str, tensors: Sequence[Any]) -> dict[str, Any]:
        """For the operator, after the checks."""
        factors = _factor("prescale_factor", self.prescale), _factor("postscale_factor", self.postscale)
        for number in {adapter.dtype(tensor) for tensor in tensors}:
            reduce_ops.check_dtype(self.op, number, float(factors[0]), float(factors[1]))
        number = set_number(self.process_set)
        if self.op is reduce_ops.Adasum:
            reduce_ops.check_adasum(number, session.require().size)
        return {
            "reduce_op": int(self.op),
            "prescale_factor": factors[0],
            "postscale_factor": factors[1],
            "process_set_id": number,
        }


def allreduce(tensors: Sequence[Any], naming: Naming, reduction: Reduction) -> list[Any]:
    """Collective. Results of the tensors' shapes."""
    if not tensors:
        return []
    with _telling_others(ALLREDUCE, naming, reduction.process_set, len(tensors)) as what:
        _require_types(what, tensors)
        attributes = reduction.attributes(what, tensors)
    return launch("HorovodAllreduce", tensors, {**naming.attributes, **attributes}, naming.node)


def reducescatter(tensors: Sequence[Any], naming: Naming, reduction: Reduction) -> list[Any]:
    """Collective. This rank's blocks of rows."""
    if not tensors:
        return []
    with _telling_others(REDUCESCATTER, naming, reduction.process_set, len(tensors)) as what:
        _require_types(what, tensors)
        _require_rows(what, tensors)
        if reduction.op is not reduce_ops.Average and reduction.op is not reduce_ops.Sum:
            raise InvalidArgumentError(
                f"{what} supports op=hvd.Average and hvd.Sum only. Received: {reduction.op.name}."
            )
        attributes = reduction.attributes(what, tensors)
    return launch("HorovodReducescatter", tensors, {**naming.attributes, **attributes}, naming.node)


def allgather(tensors: Sequence[Any], naming: Naming, process_set: ProcessSet) -> list[Any]:
    """Collective. All members' rows, in the order of their ranks."""
    if not tensors:
        return []
    with _telling_others(ALLGATHER, naming, process_set, len(tensors)) as what:
        _require_types(what, tensors)
        _require_rows(what, tensors)
        number = set_number(process_set)
    return launch("HorovodAllgather", tensors, {**naming.attributes, "process_set_id": number}, naming.node)


def broadcast(tensors: Sequence[Any], root_rank: int, naming: Naming, process_set: ProcessSet) -> list[Any]:
    """Collective. The root's tensors."""
    if not tensors:
        return []
    with _telling_others(BROADCAST, naming, process_set, len(tensors)) as what:
        _require_types(what, tensors)
        number = set_number(process_set)
        root = _root(what, root_rank, process_set)
    attributes = {**naming.attributes, "process_set_id": number, "root_rank": root}
    return launch("HorovodBroadcast", tensors, attributes, naming.node)


def alltoall(tensor: Any, splits: Any, naming: Naming, process_set: ProcessSet) -> tuple[Any, Any]:
    """Collective. The rows that the members sent here, and how many came from each."""
    with _telling_others(ALLTOALL, naming, process_set, 1) as what:
        _require_types(what, [tensor])
        _require_rows(what, [tensor])
        number = set_number(process_set)
        rows = _splits(what, splits)
    attributes = {**naming.attributes, "process_set_id": number}
    output, received_splits = launch("HorovodAlltoall", [tensor, rows], attributes, naming.node)
    return output, received_splits


def _root(what: str, root_rank: Any, process_set: ProcessSet) -> int:
    try:
        root = int(root_rank)
    except (TypeError, ValueError):
        root = -1
    if root not in (process_set.ranks or ()):
        raise InvalidArgumentError(
            f"{what}: root_rank must be a member of the process set. Received: {root_rank!r}; the set has ranks "
            f"{process_set.ranks}."
        )
    return root


def _splits(what: str, splits: Any) -> Any:
    """An int32 tensor on the host; empty = equal parts."""
    if splits is None:
        return tf.zeros([0], tf.int32)
    try:
        rows = tf.convert_to_tensor(splits)
        if not rows.dtype.is_integer:
            raise TypeError
    except (TypeError, ValueError):
        raise InvalidArgumentError(f"{what}: splits must be integers, one per member. Received: {splits!r}.") from None
    return tf.cast(rows, tf.int32)
