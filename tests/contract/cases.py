"""The contract of the collectives as data: every operation x element count x dtype x reduction, with inputs and
expected values.

A case says what a rank contributes and what it must receive, computed with NumPy from the ranks' seeds alone. Pure: no
rank, no engine, no framework. Used by `case_runner`.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from fakes.arithmetic import numpy_dtype, reduced, rows_of

from horovod._core.operations.reduce_ops import ReduceOp, is_power_of_two
from horovod._core.tensors import dtypes

Array = np.ndarray[Any, Any]

LARGE = 100003

EIGHT_BITS = (dtypes.FLOAT8_E4M3FN, dtypes.FLOAT8_E5M2)

# The largest whole number of an input, where seven of 6 have no exact sum.
_LARGEST = {dtypes.FLOAT8_E4M3FN: 2, dtypes.FLOAT8_E5M2: 1}


@dataclass(frozen=True)
class Case:
    """One collective call, equal on all ranks but for the values.

    Attributes:
        kind: "allreduce", "allreduce_", "allgather", "broadcast", "broadcast_", "alltoall", "alltoall_splits" or
            "reducescatter".
        dtype: hvd_dtype.
        count: elements, or rows where the operation works on rows.
        op: for reductions.
        factors: prescale and postscale.
    """

    kind: str
    dtype: int
    count: int
    op: ReduceOp = ReduceOp.Sum
    factors: tuple[float, float] = (1.0, 1.0)

    @property
    def name(self) -> str:
        """Identity of the case: the name of its operation, and its seed."""
        factors = "" if self.factors == (1.0, 1.0) else f".{self.factors[0]:g}.{self.factors[1]:g}"
        return f"{self.kind}.{dtypes.NAMES[self.dtype]}.{self.count}.{self.op.name}{factors}"

    def root(self, size: int) -> int:
        """Root of a broadcast: not always the same rank."""
        return zlib.crc32(self.name.encode()) % size

    def splits(self, rank: int, size: int) -> list[int]:
        """Rows that `rank` sends to each rank: uneven, some of them none."""
        return [
            (self.count + 2 * rank + 3 * other) % 5 if self.count < LARGE else LARGE // size for other in range(size)
        ]

    def shape(self, rank: int, size: int) -> tuple[int, ...]:
        """Shape of what `rank` contributes."""
        if self.kind == "allgather":
            # Different numbers of rows, none on some rank.
            return (self.count + rank if self.count else rank % 2, 2)
        if self.kind == "alltoall":
            return (self.count * size, 2) if self.count < LARGE else (self.count // size * size,)
        if self.kind == "alltoall_splits":
            return (sum(self.splits(rank, size)) + 1, 3)  # one row goes nowhere
        if self.kind == "reducescatter":
            return (self.count, 2)
        return (self.count,)

    def input(self, rank: int, size: int) -> Array:
        """What `rank` contributes. Small whole numbers, so that sums are exact in every dtype, whatever the order."""
        rng = np.random.default_rng([zlib.crc32(self.name.encode()), rank])
        dtype = numpy_dtype(self.dtype)
        shape = self.shape(rank, size)
        if self.dtype == dtypes.BOOL:
            return rng.integers(0, 2, shape).astype(np.bool_)
        if self.op == ReduceOp.Product:
            return rng.integers(1, 3, shape).astype(dtype)
        if self.op == ReduceOp.Adasum:
            return rng.standard_normal(shape).astype(dtype)
        largest = _LARGEST.get(self.dtype, 6)
        return rng.integers(0 if dtype.kind == "u" else -largest, largest + 1, shape).astype(dtype)

    def expected(self, rank: int, size: int) -> Array:
        """What `rank` must receive."""
        inputs = [self.input(other, size) for other in range(size)]
        if self.kind.startswith("allreduce"):
            return reduced(inputs, self.op, *self.factors)
        if self.kind == "reducescatter":
            start, stop = rows_of(self.count, size, rank)
            return reduced(inputs, self.op, *self.factors)[start:stop]
        if self.kind == "allgather":
            return np.concatenate(inputs)
        if self.kind.startswith("broadcast"):
            return inputs[self.root(size)]
        blocks = []
        for other, sent in enumerate(inputs):
            splits = self.splits(other, size) if self.kind == "alltoall_splits" else [len(sent) // size] * size
            blocks.append(sent[sum(splits[:rank]) : sum(splits[: rank + 1])])
        return np.concatenate(blocks)

    def tolerance(self) -> float:
        """Relative tolerance: 0 = equal bits."""
        if self.dtype not in dtypes.FLOATING:
            return 0.0
        if self.dtype in EIGHT_BITS:  # also factors are exact in float32, and rounded once as they are here
            steps = {dtypes.FLOAT8_E4M3FN: 2.0**-3, dtypes.FLOAT8_E5M2: 2.0**-2}
            return steps[self.dtype] if self.op == ReduceOp.Adasum else 0.0
        eps = {dtypes.FLOAT16: 2.0**-10, dtypes.BFLOAT16: 2.0**-7, dtypes.FLOAT32: 2.0**-23, dtypes.FLOAT64: 2.0**-52}
        if self.op == ReduceOp.Adasum:
            return 64 * eps[self.dtype]
        exact = self.op != ReduceOp.Average and self.factors == (1.0, 1.0)
        return 0.0 if exact else 2 * eps[self.dtype]


def counts(size: int) -> list[int]:
    """Element counts around the number of ranks, where off-by-one errors live."""
    return sorted({0, 1, size - 1, size, size + 1, LARGE})


def reduce_ops_of(dtype: int, size: int) -> list[ReduceOp]:
    """The reductions that a dtype has."""
    if dtype == dtypes.BOOL:
        return [op for op in ReduceOp if not op.row.divides and not op.row.directions]
    with_adasum = dtype in dtypes.FLOATING and is_power_of_two(size)
    return [op for op in ReduceOp if with_adasum or not op.row.directions]


def cases_of(dtype: int, count: int, size: int) -> Iterator[Case]:
    """The cases without factors of a dtype and an element count."""
    for op in reduce_ops_of(dtype, size):
        # Large arrays of every type take long and find nothing that Sum and one other do not.
        if count < LARGE or op in (ReduceOp.Sum, ReduceOp.Max, ReduceOp.Adasum):
            yield Case("allreduce", dtype, count, op)
    yield Case("allreduce_", dtype, count)
    yield Case("reducescatter", dtype, count)
    if dtype != dtypes.BOOL:
        yield Case("reducescatter", dtype, count, ReduceOp.Average)
    for kind in ("allgather", "broadcast", "broadcast_", "alltoall", "alltoall_splits"):
        yield Case(kind, dtype, count)


def eight_bit_cases(size: int) -> Iterator[Case]:
    """Of the 8-bit floats, what `all_cases` leaves out."""
    for dtype in EIGHT_BITS:
        for count in counts(size):
            yield from cases_of(dtype, count, size)


def all_cases(size: int) -> Iterator[Case]:
    """Every case for a number of ranks; for the 8-bit floats, whose bytes move like those of uint8, one count."""
    for dtype in range(len(dtypes.NAMES)):
        for count in counts(size) if dtype not in EIGHT_BITS else [size + 1]:
            yield from cases_of(dtype, count, size)
    for dtype in (
        *EIGHT_BITS,
        dtypes.FLOAT16,
        dtypes.FLOAT32,
        dtypes.FLOAT64,
        dtypes.INT32,
        dtypes.INT64,
        dtypes.UINT8,
        dtypes.BFLOAT16,
    ):
        for factors in ((0.5, 1.0), (1.0, 0.25), (2.0, 0.5)):
            yield Case("allreduce", dtype, size + 1, ReduceOp.Sum, factors)
            yield Case("reducescatter", dtype, size + 1, ReduceOp.Sum, factors)
            yield Case("allreduce_", dtype, size + 1, ReduceOp.Average, factors)
