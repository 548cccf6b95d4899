"""Making the ranks equal, exchanging Python objects, and averaging metrics."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from horovod._core.errors import HorovodError, MismatchError
from horovod._core.life.process_sets import ProcessSet, global_process_set
from horovod._core.operations.agreement import agree
from horovod._core.operations.objects import allgather_object, broadcast_object
from horovod._core.operations.reduce_ops import Average
from horovod.jax import operators
from horovod.jax.ops import allreduce, broadcast
from horovod.jax.trees import flatten, key_data

__all__ = [
    "allgather_object",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "metric_average",
]


def broadcast_parameters(params: Any, root_rank: int = 0, process_set: ProcessSet = global_process_set) -> Any:
    """The root's parameters, for all members. Unlike `broadcast` it says which leaf differs, and in what, before
    anything is sent.

    Collective; not in compiled functions.

    Args:
        params: a tree of arrays and random keys.
        root_rank: global rank that has the values.
        process_set: the ranks that take part.

    Returns:
        A tree of the same structure.

    Raises:
        InvalidArgumentError: a leaf is no array; the other ranks get a MismatchError.
        MismatchError: the ranks have different leaves, dtypes or shapes.
    """
    return _broadcast("broadcast_parameters", "params", params, root_rank, process_set)


def broadcast_optimizer_state(opt_state: Any, root_rank: int = 0, process_set: ProcessSet = global_process_set) -> Any:
    """The root's state of an optimizer, for all members; see `broadcast_parameters`. Collective."""
    return _broadcast("broadcast_optimizer_state", "optimizer_state", opt_state, root_rank, process_set)


def metric_average(tree: Any, name: str = "metrics", process_set: ProcessSet = global_process_set) -> Any:
    """The members' averages of numbers and arrays, in float32. Collective."""
    wide = jax.tree_util.tree_map(lambda leaf: jnp.asarray(leaf, jnp.float32), tree)
    return allreduce(wide, Average, name, process_set=process_set)


def _broadcast(function: str, name: str, tree: Any, root_rank: int, process_set: ProcessSet) -> Any:
    if not operators.tracing():
        _require_alike(function, name, tree, process_set)
    return broadcast(tree, root_rank, name, process_set)


def _require_alike(function: str, name: str, tree: Any, process_set: ProcessSet) -> None:
    forms: dict[str, str] = {}
    refusal = None
    try:
        leaves = flatten(function, key_data(tree), name)
        forms = {own: f"{one.dtype} {list(one.shape)}" for own, one in zip(leaves.names, leaves.arrays)}
    except HorovodError as error:
        refusal = error
    everywhere = agree(function, forms, refusal, process_set)
    first, ranks = everywhere[0], list(process_set.ranks or ())
    for rank, other in zip(ranks, everywhere):
        for leaf in sorted(first.keys() | other.keys()):
            one, two = first.get(leaf, "missing"), other.get(leaf, "missing")
            if one != two:
                raise MismatchError(
                    f"{function}: {leaf} is {one} on rank {ranks[0]} and {two} on rank {rank}. Make the same model on "
                    "all ranks."
                )
