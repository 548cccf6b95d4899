"""Statistics of a batch that lies on all ranks: what a batch normalisation over the ranks is made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Union

import jax
import jax.numpy as jnp

from horovod._core.life import session
from horovod._core.life.process_sets import ProcessSet, global_process_set
from horovod._core.operations.reduce_ops import Average, Sum
from horovod._core.operations.submission import member_set
from horovod.jax.ops import allreduce

__all__ = ["batch_moments", "batch_stats_mean"]


def batch_moments(
    x: Any,
    axis: Union[int, Sequence[int]] = 0,
    name: str = "batch_moments",
    process_set: ProcessSet = global_process_set,
) -> tuple[Any, Any]:
    """Mean and variance (without Bessel's correction) over the batches of all members, as of one batch that holds them
    all; with their gradients. Collective.

    Args:
        x: this member's part of the batch.
        axis: which dimensions are of the batch; they may be of other lengths on other members, where `x` is not empty.
        name: identity of the operation, equal on all members.
        process_set: the ranks that take part.

    Returns:
        Both in float32, or in the type of `x` if that is wider.
    """
    current = session.require()
    member_set(current, process_set)
    ranks = list(process_set.ranks or ())
    wide = jnp.asarray(x, jnp.promote_types(x.dtype, jnp.float32))
    mean = wide.mean(axis)
    count = jnp.full(mean.shape, wide.size / max(mean.size, 1), wide.dtype)
    # One row for each member, of zeros but for its own: unlike an allgather a sum has the sum of the cotangents as its
    # gradient. And unlike sums of squares, variances can be combined without losing digits.
    own = jnp.stack([count, mean, wide.var(axis)])
    rows = jnp.zeros((len(ranks), *own.shape), own.dtype).at[ranks.index(current.rank)].set(own)
    counts, means, variances = jnp.moveaxis(allreduce(rows, Sum, name, process_set=process_set), 1, 0)
    shares = counts / counts.sum(0)
    total = (shares * means).sum(0)
    return total, (shares * (variances + (means - total) ** 2)).sum(0)


def batch_stats_mean(tree: Any, name: str = "batch_stats", process_set: ProcessSet = global_process_set) -> Any:
    """The members' averages of running statistics, such as flax's `batch_stats`: for an evaluation, or a checkpoint, of
    models whose batch normalisation sees this member's batches alone. Collective.

    Args:
        tree: floating arrays are averaged; others, such as counters, stay as they are.
        name: identity of the operation, equal on all members.
        process_set: the ranks that take part.

    Returns:
        A tree of the same structure and dtypes.
    """
    leaves, structure = jax.tree_util.tree_flatten(tree)
    floating = [index for index, leaf in enumerate(leaves) if jnp.issubdtype(jnp.result_type(leaf), jnp.floating)]
    means = allreduce([leaves[index] for index in floating], Average, name, process_set=process_set)
    for index, one in zip(floating, means):
        leaves[index] = one
    return jax.tree_util.tree_unflatten(structure, leaves)
