"""Gradients of the operations, which are those of every framework here: allreduce gives the same allreduce of the
incoming gradient, allgather and broadcast the average over the ranks, alltoall sends back, reducescatter gathers. Every
gradient is itself a collective: all members must run the backward pass.

The token goes through `jax.custom_vjp` like an array. In the backward pass its cotangent is the token of that pass, and
what the forward pass has kept makes the one begin behind the other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from horovod._core.errors import UnsupportedError
from horovod._core.life import session
from horovod._core.life.engine_port import ALLGATHER, ALLREDUCE, ALLTOALL, BROADCAST
from horovod._core.operations.reduce_ops import Average, Gradient, Sum
from horovod.jax import operators
from horovod.jax.dispatch import on_the_host, run_after
from horovod.jax.operation import Operation, collectives

__all__ = ["run"]


def run(operation: Operation, arrays: Sequence[Any]) -> list[Any]:
    """Runs an operation, with its gradients; in a traced function after those called before. Collective.

    Returns:
        An array per array.
    """
    if not arrays:
        return []
    if not operators.tracing():
        return on_the_host(operation, arrays)
    operation.check(arrays)
    return operators.in_order(_differentiable(operation), arrays)


def _differentiable(operation: Operation) -> Any:
    """A function of a token and arrays that gives the next token and the results, with gradients."""

    @jax.custom_vjp
    def run(token: Any, *arrays: Any) -> Any:
        return run_after(operation, token, arrays)

    def forward(token: Any, *arrays: Any) -> Any:
        results = run(token, *arrays)  # which has a gradient, too
        extremum = operation.op_type == ALLREDUCE and operation.op.row.gradient is Gradient.HOLDERS
        # Of the others the backward pass needs the shapes alone.
        kept = arrays if extremum else [jnp.zeros((0, *array.shape), array.dtype) for array in arrays]
        return results, (results[0], kept)

    def backward(kept: Any, cotangents: Any) -> Any:
        token, *incoming = cotangents
        behind, arrays = kept
        # Integers have no gradients.
        floating = [index for index, array in enumerate(arrays) if jnp.issubdtype(array.dtype, jnp.inexact)]
        gradients: list[Any] = [None] * len(arrays)
        last = token + behind

        def go(token: Any, *some: Any) -> Sequence[Any]:
            nonlocal last
            last, *found = _backward(operation, floating, token + last, [arrays[i] for i in floating], some)
            return (last, *found)

        if floating:
            for index, gradient in zip(floating, operators.in_order(go, [incoming[i] for i in floating])):
                gradients[index] = gradient
        return (last, *gradients)

    run.defvjp(forward, backward)
    return run


def _backward(
    operation: Operation, which: Sequence[int], token: Any, arrays: Sequence[Any], incoming: Sequence[Any]
) -> Sequence[Any]:
    """The next token and the gradients."""
    kind, members = operation.op_type, operation.members()
    if kind == ALLREDUCE:
        return _allreduce_backward(operation, which, token, arrays, incoming)
    if kind == ALLTOALL:
        return _again(operation.backward(which), token, incoming)
    if kind in (ALLGATHER, BROADCAST):
        average = operation.backward(which, op_type=ALLREDUCE, op=Average, root=0)
        token, *averages = _again(average, token, incoming)
        if kind == ALLGATHER:
            return (token, *_own_blocks(operation, averages, [array.shape[1] for array in arrays]))
        if session.require().rank == operation.root:
            return (token, *averages)
        # Zeros, but XLA must not see that nothing else can come out: it would leave the call out, on these ranks alone.
        return (token, *(jnp.where(token == 0, jnp.zeros_like(one), one) for one in averages))
    rows = tuple(array.shape[1] for array in arrays)
    token, *gathered = _again(operation.backward(which, op_type=ALLGATHER, rows=rows), token, incoming)
    # Upstream's convention: a sum's gradient counts once for every rank, an average's once.
    scale = operation.factors[0] * operation.factors[1] * (1 if operation.op.row.divides else len(members))
    return (token, *(one * jnp.asarray(scale, one.dtype) for one in gathered))


def _allreduce_backward(
    operation: Operation, which: Sequence[int], token: Any, arrays: Sequence[Any], incoming: Sequence[Any]
) -> Sequence[Any]:
    row = operation.op.row
    if row.gradient is Gradient.NONE:
        raise UnsupportedError(
            f"{operation.what} with op=hvd.{operation.op} has no gradient here. Sum the logarithms with op=hvd.Sum "
            "instead, or use jax.lax.stop_gradient."
        )
    if row.gradient is Gradient.SAME:
        return _again(operation.backward(which), token, incoming)
    # Of Min and Max: it goes to the ranks that hold the extremum, in equal parts if there are several.
    before, after = operation.factors
    scaled = [array * jnp.asarray(before, array.dtype) for array in arrays]
    token, *extrema = _again(operation.backward(which, factors=(1.0, 1.0)), token, scaled)
    held = [(one == extremum).astype(one.dtype) for one, extremum in zip(scaled, extrema)]
    total = operation.backward([*which, *which], op=Sum, factors=(1.0, 1.0))
    names = (*(f"{name}.holders" for name in total.names[: len(which)]), *total.names[len(which) :])
    token, *sums = _again(dataclasses.replace(total, names=names), token, [*held, *incoming])
    holders, sums = sums[: len(which)], sums[len(which) :]
    return (token, *(s * h / n * jnp.asarray(before * after, s.dtype) for s, h, n in zip(sums, held, holders)))


def _own_blocks(operation: Operation, averages: Sequence[Any], rows: Sequence[int]) -> list[Any]:
    """This rank's rows of gradients of all ranks' rows."""
    members = operation.members()
    index = members.index(session.require().rank)
    starts = [index * count for count in rows]
    if not operators.tracing():  # then the ranks may have given differently many
        name = f"{operation.names[0]}.gradient.rows"
        counts = collectives.allgather(np.array([rows]), name, operation.process_set)
        starts = counts[:index].sum(0).tolist()
    return [average[start : start + count] for average, start, count in zip(averages, starts, rows)]


def _again(operation: Operation, token: Any, arrays: Sequence[Any]) -> Sequence[Any]:
    """Runs a gradient's operation, with a gradient of its own."""
    results: Sequence[Any] = _differentiable(operation)(token, *arrays)
    return results
