"""The arithmetic and the checks of the fake engine, in NumPy: what the ranks' contributions to one operation become.

Used by `engine`, and by the contract cases for the expected values, which are computed from the ranks' seeds
alone.
"""

from __future__ import annotations

import ctypes
from typing import Any, Optional

import ml_dtypes
import numpy as np

from horovod._core.life.engine_port import ALLGATHER, ALLREDUCE, ALLTOALL, BARRIER, BROADCAST, OP_NAMES, REDUCESCATTER
from horovod._core.operations.reduce_ops import ReduceOp
from horovod._core.tensors import dtypes

Array = np.ndarray[Any, Any]


def numpy_dtype(number: int) -> np.dtype[Any]:
    """The NumPy dtype of an hvd_dtype."""
    name = dtypes.NAMES[number]
    return np.dtype(getattr(ml_dtypes, name) if hasattr(ml_dtypes, name) else name)


def array_at(address: Optional[int], dtype: int, shape: tuple[int, ...]) -> Array:
    """The memory at an address as an array."""
    nbytes = dtypes.elements(shape) * dtypes.ITEM_BYTES[dtype]
    if nbytes == 0:
        return np.empty(shape, numpy_dtype(dtype))
    return np.frombuffer((ctypes.c_ubyte * nbytes).from_address(address), numpy_dtype(dtype)).reshape(shape)


def scaled(values: Array, factor: float) -> Array:
    """values * factor by the core's rule: floats in their own (or float32) precision, integers in double and
    truncated."""
    if factor == 1.0:
        return values
    if values.dtype.kind in "iu":
        limits = np.iinfo(values.dtype)
        product = np.trunc(values.astype(np.float64) * factor)
        # float64 cannot hold the largest 64-bit integers: clip below them.
        return np.clip(product, float(limits.min), np.nextafter(float(limits.max), 0)).astype(values.dtype)
    return values * values.dtype.type(factor)


def reduced(parts: list[Array], op: int, prescale: float = 1.0, postscale: float = 1.0) -> Array:
    """The reduction of the ranks' arrays, in rank order; smaller floats are added in float32 and rounded once."""
    dtype = parts[0].dtype
    if dtype == np.bool_:
        combine = np.logical_or if op in (ReduceOp.Sum, ReduceOp.Max) else np.logical_and
        return np.asarray(combine.reduce(parts))
    if op == ReduceOp.Average:
        if dtype.kind in "iu" and postscale == 1.0:  # exact, also where float64 is not
            return truncated_quotient(reduced(parts, ReduceOp.Sum, prescale), len(parts))
        op, postscale = ReduceOp.Sum, postscale / len(parts)
    small = dtype.itemsize <= 2 and dtype.kind not in "iu"
    work = [scaled(part.astype(np.float32) if small else part, prescale) for part in parts]
    if op == ReduceOp.Adasum:
        total = adasum([part.astype(np.float64) for part in work], dtype if dtype.itemsize == 1 else None)
        return scaled(total, postscale).astype(dtype)
    combine_two = {
        ReduceOp.Sum: np.add,
        ReduceOp.Min: np.minimum,
        ReduceOp.Max: np.maximum,
        ReduceOp.Product: np.multiply,
    }[ReduceOp(op)]
    total = work[0]
    with np.errstate(over="ignore", invalid="ignore"):
        for part in work[1:]:
            total = combine_two(total, part)
        return np.asarray(scaled(total, postscale).astype(dtype, copy=False))


def truncated_quotient(total: Array, divisor: int) -> Array:
    """Integers divided, rounded toward zero."""
    floor, rest = np.divmod(total, total.dtype.type(divisor))
    return np.asarray(floor + ((rest != 0) & (total < 0)).astype(total.dtype))


def adasum(parts: list[Array], coarse: Optional[np.dtype[Any]] = None) -> Array:
    """Pairwise combination of neighbours, as often as needed; `coarse`: a dtype that each of them is rounded to."""
    while len(parts) > 1:
        parts = [_adasum_pair(parts[i], parts[i + 1]) for i in range(0, len(parts), 2)]
        if coarse is not None:
            parts = [part.astype(np.float32).astype(coarse).astype(np.float64) for part in parts]
    return parts[0]


def _adasum_pair(a: Array, b: Array) -> Array:
    dot, aa, bb = float(np.vdot(a, b)), float(np.vdot(a, a)), float(np.vdot(b, b))
    tiny = float(np.sqrt(np.finfo(np.float64).tiny))
    return (1 - dot / (2 * aa) if aa >= tiny else 1.0) * a + (1 - dot / (2 * bb) if bb >= tiny else 1.0) * b


def rows_of(n: int, size: int, index: int) -> tuple[int, int]:
    """First row and one past the last of a member's block in a reducescatter."""
    base, more = divmod(n, size)
    start = index * base + min(index, more)
    return start, start + base + (index < more)


def identity(dtype: np.dtype[Any], op: int) -> Any:
    """What a joined rank contributes."""
    if op in (ReduceOp.Sum, ReduceOp.Average, ReduceOp.Adasum):
        return dtype.type(0)
    if op == ReduceOp.Product:
        return dtype.type(1)
    if dtype == np.bool_:
        return np.bool_(op == ReduceOp.Min)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return limits.max if op == ReduceOp.Min else limits.min
    if dtype == ml_dtypes.float8_e4m3fn:  # has no infinity
        return ml_dtypes.finfo(dtype).max if op == ReduceOp.Min else ml_dtypes.finfo(dtype).min
    return dtype.type(np.inf if op == ReduceOp.Min else -np.inf)


def execute(ordered: list[Any]) -> None:
    """Computes an operation whose members agree; writes outputs and results of those that are not absent."""
    model = next(one for one in ordered if not one.absent)
    if model.type == BARRIER:
        return
    for one in ordered:
        if one.absent:
            dtype = numpy_dtype(one.dtype)
            one.input = np.full(one.shape, identity(dtype, model.reduce_op), dtype)
    inputs = [one.input for one in ordered]
    if model.type in (ALLREDUCE, REDUCESCATTER):
        total = reduced(inputs, model.reduce_op, *model.factors)
    for index, one in enumerate(ordered):
        if one.absent:
            continue
        if model.type == ALLREDUCE:
            one.output[...] = total
        elif model.type == BROADCAST:
            one.output[...] = next(other.input for other in ordered if other.rank == model.root)
        elif model.type == ALLGATHER:
            one.ticket.results[one.index] = np.concatenate(inputs)
        elif model.type == REDUCESCATTER:
            start, stop = rows_of(one.shape[0], len(ordered), index)
            one.ticket.results[one.index] = total[start:stop].copy()
        elif model.type == ALLTOALL:
            blocks = [other.input[sum(other.splits[:index]) : sum(other.splits[: index + 1])] for other in ordered]
            one.ticket.results[one.index] = np.concatenate(blocks)
            one.ticket.received[one.index] = [len(block) for block in blocks]


def mismatch(name: str, ordered: list[Any], missing: list[int]) -> str:
    """Why the members' contributions do not fit together; empty if they do."""
    for one in ordered:
        if one.refusal:
            return f"{name}: rank {one.rank} refused: {one.refusal}"
    first = ordered[0]
    what = f"{OP_NAMES[first.type]} '{name}'"
    if missing and first.type not in (ALLREDUCE, BARRIER):
        return f"{what}: rank {missing[0]} has joined; only allreduce and barrier go on after a join."
    gathers = first.type in (ALLGATHER, ALLTOALL)
    for other in ordered[1:]:
        for label, mine, theirs in (
            ("operation ", OP_NAMES[first.type], OP_NAMES[other.type]),
            ("", _tensor_text(first, gathers), _tensor_text(other, gathers)),
            ("factors ", first.factors, other.factors),
            ("reduction ", ReduceOp(first.reduce_op).name, ReduceOp(other.reduce_op).name),
            ("root rank ", first.root, other.root),
            ("group ", len(first.group), len(other.group)),
        ):
            if mine != theirs:
                who = f"rank {other.rank} sent {label}{theirs}, rank {first.rank} sent {label}{mine}"
                return f"{what}: {who}; all must agree."
    return ""


def _tensor_text(one: Any, gathers: bool) -> str:
    return f"{dtypes.NAMES[one.dtype]} {['*', *one.shape[1:]] if gathers else list(one.shape)}"
