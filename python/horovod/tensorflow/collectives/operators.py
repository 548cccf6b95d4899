"""One operator of the core per call: checks that this rank can make, names, and the way from arguments to attributes.

Used by `ops`, which holds the public signatures, and by `reducer`. In a graph an operation's identity is its node's
name; in eager mode the name given, or the operator's own: eager calls come one after the other, in the same order on
all ranks.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NoReturn, Optional

import tensorflow as tf

from horovod._core.errors import HorovodError, InvalidArgumentError
from horovod._core.life import session
from horovod._core.life.engine_port import ALLGATHER, ALLREDUCE, ALLTOALL, BROADCAST, OP_NAMES, REDUCESCATTER
from horovod._core.life.process_sets import ProcessSet
from horovod._core.operations import checks, reduce_ops, submission
from horovod._core.operations.reduce_ops import ReduceOp
from horovod.tensorflow.adapter import adapter, as_tensors
from horovod.tensorflow.collectives.dispatch import launch

__all__ = [
    "Naming", "NamingEach", "allgather", "allreduce", "alltoall", "as_inputs", "broadcast", "placed", "plain_name",
    "reducescatter", "set_number",
]  # fmt: skip


class ArgumentError(tf.errors.InvalidArgumentError, InvalidArgumentError):  # type: ignore[misc,unused-ignore]
    """An argument of an operation is wrong on this rank: Horovod's ValueError, and the error that TensorFlow's own
    operators raise."""

    def __init__(self, node_def: Any, op: Any, message: str) -> None:
        tf.errors.InvalidArgumentError.__init__(self, node_def, op, message)
        self.__suppress_context__ = True  # raised while the one that it stands for is handled


def set_number(process_set: ProcessSet) -> int:
    """The id of a process set that this rank belongs to."""
    return submission.member_set(session.require(), process_set)


def plain_name(text: str) -> str:
    """The text with everything replaced that may not stand in a node's name."""
    return re.sub(r"[^a-zA-Z0-9_.\\/-]", "_", text)


def placed(device: str) -> contextlib.AbstractContextManager[Any]:
    """Places what is made inside on the device; "" = as outside. (`tf.device(None)` makes TensorFlow forget the
    script's own `tf.device`.)"""
    return tf.device(device) if device else contextlib.nullcontext()


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


class NamingEach(Naming):
    """How the operations are called that one allreduce operator of a graph stands for: one for each tensor, with the
    name that it had as a node. So the ranks need not agree about what one operator does.

    Args:
        names: by tensor; each begins with the name of one scope and a slash.
        node: the last part of the node's name.
        waits: the operator waits for a moment. Not in two operators of a graph of which either may run first.
    """

    def __init__(self, names: Sequence[str], node: str, waits: bool) -> None:
        scope = names[0].partition("/")[0]
        super().__init__("HorovodAllreduce", f"{scope}/{node}", [])
        graph = tf.compat.v1.get_default_graph()
        path = graph.unique_name(self.node, mark_as_used=False).rpartition("/")[0] + "/"
        unique = [graph.unique_name(plain_name(name)) for name in names]
        own = [name[len(path) :] for name in unique]
        self.attributes = {**self.attributes, "tensor_names": own, "waits": waits}


@contextlib.contextmanager
def _telling_others(op_type: int, naming: Naming, process_set: ProcessSet, n: int) -> Iterator[str]:
    """An error in the body is sent to the other members, which are at the same call now; but not while a function is
    traced: then they trace it too, and fail alike. Yields how messages call the operation."""
    try:
        yield submission.called(op_type, naming.known)
    except InvalidArgumentError as found:
        _refuse(op_type, naming, process_set, n, ArgumentError(None, None, str(found)))
    except HorovodError as error:
        _refuse(op_type, naming, process_set, n, error)


def as_inputs(op_type: int, values: Iterable[Any], name: Optional[str], process_set: ProcessSet) -> list[Any]:
    """The values as tensors. A value that cannot be one is reported to the other members, like any bad argument."""
    values = list(values)
    try:
        return as_tensors(values)
    except (TypeError, ValueError) as error:
        naming = Naming(f"Horovod{OP_NAMES[op_type].title()}", name, [])
        _refuse(op_type, naming, process_set, len(values), error)


def _refuse(op_type: int, naming: Naming, process_set: ProcessSet, n: int, error: Exception) -> NoReturn:
    if tf.executing_eagerly():
        current = session.require()
        names = [submission.full_name(op_type, naming.known)]
        if n > 1:
            names = submission.member_names(names[0], n)
        try:
            number = submission.member_set(current, process_set)
        except InvalidArgumentError:
            raise error from None  # of no member: there is nobody to tell
        submission.refuse(current, op_type, number, names, error)
    raise error


def _require_types(what: str, tensors: Sequence[Any]) -> None:
    # One of each: groups are long.
    checks.require_dtypes(what, adapter, {tensor.dtype: tensor for tensor in tensors}.values())


def _require_rows(what: str, tensors: Sequence[Any]) -> None:
    checks.require_rows(what, (tensor.shape.rank for tensor in tensors))


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
        prescale = checks.factor("prescale_factor", self.prescale)
        postscale = checks.factor("postscale_factor", self.postscale)
        checks.require_reducible(self.op, adapter, tensors, (prescale, postscale))
        number = set_number(self.process_set)
        reduce_ops.check_members(self.op, number, session.require().size)
        return {
            "reduce_op": int(self.op),
            # Texts, because attributes hold no doubles.
            "prescale_factor": repr(prescale),
            "postscale_factor": repr(postscale),
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
        reduce_ops.check_linear(what, reduction.op)
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
