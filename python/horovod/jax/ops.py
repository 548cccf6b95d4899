"""The collectives that users call: pytrees in, pytrees out, pure.

Outside of compiled functions they work at once, through the host's memory. In functions that JAX traces they are custom
calls, which the core handles (`operators`), with gradients and a rule for `jax.vmap`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

import jax
import jax.numpy as jnp
import numpy as np

from horovod._core.errors import UnsupportedError
from horovod._core.life.engine_port import ALLGATHER, ALLREDUCE, ALLTOALL, BROADCAST, OP_NAMES, REDUCESCATTER
from horovod._core.life.process_sets import ProcessSet, global_process_set
from horovod._core.operations import checks
from horovod._core.operations.reduce_ops import Average, meant
from horovod._core.tensors.compression import Compressor, compressed
from horovod.jax import autograd, operators
from horovod.jax.compression import Compression
from horovod.jax.operation import Operation, collectives
from horovod.jax.trees import Leaves, flatten, key_data, with_keys

__all__ = [
    "allgather",
    "allreduce",
    "alltoall",
    "barrier",
    "broadcast",
    "grouped_allreduce",
    "join",
    "recv",
    "reduce_tree",
    "reducescatter",
    "send",
]


def allreduce(
    tree: Any,
    op: int = Average,
    name: Optional[str] = None,
    compression: Compressor = Compression.none,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Combines the members' trees, element by element. All leaves are one group.

    Collective.

    Args:
        tree: arrays and numbers; structure, shapes and dtypes equal on all members. None stays None.
        op: Average, Sum, Adasum, Min, Max or Product.
        name: identity of the operation, equal on all members; leaves are called `NAME['dense']['kernel']`. None:
            all such calls have one name, so that those that may be under way together need names.
        compression: Compression.none, fp16 or bf16.
        prescale_factor: multiplies each array before the reduction.
        postscale_factor: multiplies the result.
        process_set: the ranks that take part.

    Returns:
        A tree of the same structure, shapes and dtypes. Average of integers is truncated toward zero.

    Raises:
        InvalidArgumentError, UnsupportedError: a bad argument on this rank.
        MismatchError: the members disagree on dtype, shape, op or factors. In a compiled function it is the text of a
            JaxRuntimeError.
        HorovodInternalError: a rank died, or the engine is shutting down; likewise.
    """
    factors = prescale_factor, postscale_factor
    return reduce_tree(ALLREDUCE, tree, op, name, compression, factors, process_set)


def grouped_allreduce(
    tensors: Sequence[Any],
    op: int = Average,
    name: Optional[str] = None,
    compression: Compressor = Compression.none,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """As `allreduce`, of a list, under the name that other frameworks have. Collective. Returns a list."""
    factors = prescale_factor, postscale_factor
    reduced: list[Any] = reduce_tree(ALLREDUCE, list(tensors), op, name, compression, factors, process_set)
    return reduced


def reducescatter(
    tree: Any,
    op: int = Average,
    name: Optional[str] = None,
    compression: Compressor = Compression.none,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Combines the members' trees and leaves each member a block of rows (first dimension) of every leaf.

    Collective. Of n rows each of s members gets n // s; the first n % s members get one more.

    Args:
        tree: as of `allreduce`, of arrays with at least one dimension.
        op: Average or Sum.
        name, compression, prescale_factor, postscale_factor, process_set: as of `allreduce`.

    Returns:
        A tree of this member's blocks.

    Raises:
        As `allreduce`.
    """
    factors = prescale_factor, postscale_factor
    return reduce_tree(REDUCESCATTER, tree, op, name, compression, factors, process_set)


def reduce_tree(
    op_type: int,
    tree: Any,
    op: int,
    name: Optional[str],
    compression: Compressor,
    factors: tuple[float, float],
    process_set: ProcessSet,
    groups: int = 1,
) -> Any:
    """An allreduce or reducescatter of a tree, in so many groups. Collective."""
    leaves = _leaves(op_type, tree, name)
    pairs = compressed(leaves.arrays, compression)
    before = checks.factor("prescale_factor", factors[0])
    factors = before, checks.factor("postscale_factor", factors[1])
    operation = Operation(op_type, leaves.names, process_set, meant(op), factors, groups=groups)
    results = autograd.run(operation, [sent for sent, _ in pairs])
    return leaves.tree([compression.decompress(result, context) for result, (_, context) in zip(results, pairs)])


def allgather(
    tree: Any, axis: int = 0, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Concatenates the members' leaves along an axis, in the order of their ranks.

    Collective.

    Args:
        tree: arrays with at least one dimension; dtypes and all dimensions but that of the axis equal on all members.
            In a compiled function that one too.
        axis: which dimension.
        name, process_set: as of `allreduce`.

    Returns:
        A tree of the same structure and dtypes.

    Raises:
        As `allreduce`.
    """
    leaves = _leaves(ALLGATHER, tree, name)
    # Scalars are refused by name further on.
    moved = [jnp.moveaxis(array, axis, 0) if axis and array.ndim else array for array in leaves.arrays]
    results = autograd.run(Operation(ALLGATHER, leaves.names, process_set), moved)
    return leaves.tree([jnp.moveaxis(result, 0, axis) if axis else result for result in results])


def broadcast(
    tree: Any, root_rank: int = 0, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Gives all members the root's values.

    Collective. In a compiled function it happens only if the result is used.

    Args:
        tree: arrays, numbers and random keys; structure, shapes and dtypes equal on all members.
        root_rank: a global rank, also for a process set.
        name, process_set: as of `allreduce`.

    Returns:
        A tree of the root's values.

    Raises:
        As `allreduce`.
    """
    leaves = _leaves(BROADCAST, key_data(tree), name)
    operation = Operation(BROADCAST, leaves.names, process_set, root=root_rank)
    return with_keys(leaves.tree(autograd.run(operation, leaves.arrays)), tree)


def alltoall(
    tree: Any, splits: Any = None, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Sends blocks of rows (first dimension) of every leaf to each member and gathers theirs, in the order of their
    ranks.

    Collective.

    Args:
        tree: arrays with at least one dimension; dtypes and all dimensions but the first equal on all members.
        splits: rows for each member, for an array outside of compiled functions; None: equal parts.
        name, process_set: as of `allreduce`.

    Returns:
        A tree of the received rows; with `splits` a pair of them and the number of rows from each member.

    Raises:
        As `allreduce`; UnsupportedError: splits in a function that JAX traces, or with a tree.
    """
    leaves = _leaves(ALLTOALL, tree, name)
    operation = Operation(ALLTOALL, leaves.names, process_set)
    if splits is None:
        return leaves.tree(autograd.run(operation, leaves.arrays))
    if operators.tracing() or leaves.structure != jax.tree_util.tree_structure(0):
        raise UnsupportedError(
            "alltoall with splits takes one array, outside of functions that JAX traces: how many rows arrive is not "
            "known when they are compiled. Leave splits out, or call it outside."
        )
    rows = np.asarray(splits)
    received = collectives.alltoall(np.asarray(leaves.arrays[0]), rows, leaves.names[0], process_set)
    return jax.device_put(received[0]), jax.device_put(received[1])


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Waits until all members have called it. Collective; not in compiled functions.

    Raises:
        UnsupportedError: JAX is tracing a function.
        InvalidArgumentError: this rank is not a member.
        HorovodInternalError: a rank died, or the engine is shutting down.
    """
    _require_outside("barrier")
    collectives.barrier(process_set)


def join() -> int:
    """Says that this rank has no more data: from here on it stands in for itself in the allreduces of the others, until
    all ranks have joined (`horovod.numpy.join` has the details). Collective over all ranks; not in compiled functions.

    Returns:
        The rank that joined last.

    Raises:
        UnsupportedError: JAX is tracing a function.
    """
    _require_outside("join")
    return collectives.join()


def send(tree: Any, to_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> None:
    """Sends a tree to another member, which calls `recv`; leaf by leaf, in the tree's order. Not collective; not in
    compiled functions. `horovod.numpy.send` has the details.

    Args:
        tree: arrays and numbers.
        to_rank: who receives it: a rank of the process set, from 0.
        name: for messages.
        process_set: both ranks are members.

    Raises:
        UnsupportedError: JAX is tracing a function.
        MismatchError: the receiver asks for another dtype or shape.
        HorovodInternalError: a rank died, or the engine is shutting down.
    """
    _require_outside("send")
    leaves = flatten("send", tree, "sent" if name is None else name)
    for array, own in zip(leaves.arrays, leaves.names):
        collectives.send(np.array(array, order="C"), to_rank, own, process_set)


def recv(like: Any, from_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> Any:
    """Receives what another member sends with `send`. Not collective; not in compiled functions.

    Args:
        like: a tree of arrays, or of `jax.ShapeDtypeStruct`, with the dtypes and shapes of what is sent.
        from_rank: who sends it: a rank of the process set, from 0.
        name, process_set: as of `send`.

    Returns:
        A tree of what was sent.

    Raises:
        As `send`.
    """
    _require_outside("recv")
    paths, structure = jax.tree_util.tree_flatten_with_path(like)
    names = [("received" if name is None else name) + jax.tree_util.keystr(path) for path, _ in paths]
    rooms = [np.empty(jnp.shape(leaf), jnp.result_type(leaf)) for _, leaf in paths]
    received = [collectives.recv(room, from_rank, own, process_set) for room, own in zip(rooms, names)]
    return jax.tree_util.tree_unflatten(structure, [jax.device_put(array) for array in received])


def _require_outside(what: str) -> None:
    if operators.tracing():
        raise UnsupportedError(
            f"hvd.{what}() in a function that JAX traces would run once, while it is traced. Call it outside."
        )


def _leaves(op_type: int, tree: Any, name: Optional[str]) -> Leaves:
    """Calls without a name share one. Those of compiled functions may still be under way when one is made outside."""
    default = "compiled" if operators.tracing() else "eager"
    return flatten(OP_NAMES[op_type], tree, default if name is None else name)
