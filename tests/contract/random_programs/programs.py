"""Random programs as data: the steps that every rank of a job makes, with the values that it sends and must receive.

A program is equal on all ranks; each rank takes the part that is its own. Expected values are computed with NumPy from
the seeds of the inputs, by the arithmetic that `fakes.arithmetic` describes. Pure: no rank, no engine, no framework.
`draw` makes programs, `program_worker` runs them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Optional, Union

import ml_dtypes
import numpy as np
from cases import Case
from fakes.arithmetic import identity, numpy_dtype, reduced, rows_of

from horovod._core.operations.reduce_ops import ReduceOp
from horovod._core.tensors import dtypes

Array = np.ndarray[Any, Any]
WIRE = {"fp16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}

# The largest whole number of an input: sums over four ranks, with factors up to 2, are exact in the type.
_LARGEST = {dtypes.FLOAT8_E4M3FN: 2, dtypes.FLOAT8_E5M2: 1}


@dataclass(frozen=True)
class Part:
    """One tensor of a call.

    Attributes:
        dtype: hvd_dtype.
        rows: first dimension on each member; empty: a scalar, or no dimension that members may choose.
        tail: the dimensions behind it.
        values: "whole": numbers with exact sums; "wide": any of an integer type, which wrap around; "real": floats
            with rounded sums.
    """

    dtype: int
    rows: tuple[int, ...]
    tail: tuple[int, ...]
    values: str = "whole"

    def __repr__(self) -> str:
        return f"{dtypes.NAMES[self.dtype]} {list(self.rows)} x {list(self.tail)} {self.values}"

    def shape(self, index: int) -> tuple[int, ...]:
        """Of what the member with this index sends."""
        return (self.rows[index], *self.tail) if self.rows else self.tail

    def drawn(self, rng: np.random.Generator, index: int, op: ReduceOp) -> Array:
        """What the member with this index sends."""
        dtype, shape = numpy_dtype(self.dtype), self.shape(index)
        if self.dtype == dtypes.BOOL:
            return rng.integers(0, 2, shape).astype(np.bool_)
        if self.values == "real":
            return rng.standard_normal(shape).astype(dtype)
        if self.values == "wide":
            limits = np.iinfo(dtype)
            return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
        unsigned = dtype.kind == "u"
        if op == ReduceOp.Product:
            return rng.choice([0, 1, 1, 2] if unsigned else [-2, -1, 0, 1, 1, 2], shape).astype(dtype)
        largest = _LARGEST.get(self.dtype, 6)
        return rng.integers(0 if unsigned else -largest, largest + 1, shape).astype(dtype)


@dataclass(frozen=True)
class Call:
    """One operation, or a group of them.

    Attributes:
        kind: "allreduce", "allgather", "broadcast", "alltoall", "reducescatter", or "sparse", an allreduce of sparse
            tensors.
        parts: its tensors; more than one only in a group. Of a sparse one the rows are its entries.
        members: ranks, in order.
        process_set: number of the set in its program; 0: all ranks.
        name: None: counted.
        seed: of the inputs.
        op: of reductions.
        factors: prescale and postscale.
        grouped, in_place: which variant.
        compression: of a blocking reduction.
        root: global rank.
        splits: rows from each member (first index) to each member, or None.
        form: what the input is: "plain"; "gappy", a view; "gradient", a tensor that needs one.
        extent: first dimension of a sparse tensor.
        absent: members that have joined.
    """

    kind: str
    parts: tuple[Part, ...]
    members: tuple[int, ...]
    process_set: int
    name: Optional[str]
    seed: int
    op: ReduceOp = ReduceOp.Sum
    factors: tuple[float, float] = (1.0, 1.0)
    grouped: bool = False
    in_place: bool = False
    compression: str = "none"
    root: int = 0
    splits: Optional[tuple[tuple[int, ...], ...]] = None
    form: str = "plain"
    extent: int = 0
    absent: tuple[int, ...] = ()

    def __repr__(self) -> str:
        told = ((each, getattr(self, each.name)) for each in fields(self) if each.name not in ("kind", "seed"))
        return f"{self.kind}({', '.join(f'{each.name}={value!s}' for each, value in told if value != each.default)})"

    def inputs(self, rank: int) -> list[Array]:
        """What this member sends, an array for each part."""
        index = self.members.index(rank)
        return [part.drawn(self._rng(index, n), index, self.op) for n, part in enumerate(self.parts)]

    def indices(self, rank: int) -> Array:
        """Where the entries of this member's sparse tensor lie; they may repeat."""
        index = self.members.index(rank)
        return self._rng(index, len(self.parts)).integers(0, self.extent, self.parts[0].rows[index])

    def expected(self, rank: int) -> list[Array]:
        """What this member must receive, an array for each part."""
        return [self._expected(n, self.members.index(rank)) for n in range(len(self.parts))]

    def received_splits(self, rank: int) -> Optional[list[int]]:
        """How many rows this member gets from each."""
        index = self.members.index(rank)
        return None if self.splits is None else [row[index] for row in self.splits]

    def tolerance(self, n: int) -> float:
        """Relative, of part n; 0: equal bits, because on one host ranks are combined in their order."""
        part = self.parts[n]
        if self.op == ReduceOp.Adasum:
            return Case(self.kind, part.dtype, 0, self.op).tolerance()
        rounded = self.kind == "sparse" and part.dtype in dtypes.FLOATING
        return 8 * float(np.finfo(numpy_dtype(part.dtype)).eps) if rounded else 0.0

    def _rng(self, index: int, n: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, index, n])

    def _expected(self, n: int, index: int) -> Array:
        part, size = self.parts[n], len(self.members)
        sent = [part.drawn(self._rng(i, n), i, self.op) for i in range(size)]
        if self.kind == "allgather":
            return np.concatenate(sent)
        if self.kind == "broadcast":
            return sent[self.members.index(self.root)]
        if self.kind == "alltoall":
            cuts = self.splits or [[len(rows) // size] * size for rows in sent]
            blocks = [rows[sum(to[:index]) : sum(to[: index + 1])] for rows, to in zip(sent, cuts)]
            return np.concatenate(blocks)
        if self.kind == "sparse":
            sent = [self._dense(rows, self.indices(rank)) for rows, rank in zip(sent, self.members)]
        for gone in self.absent:
            place = self.members.index(gone)
            sent[place] = np.full_like(sent[place], identity(sent[place].dtype, self.op))
        total = self._reduced(sent)
        start, stop = rows_of(len(total), size, index) if self.kind == "reducescatter" else (None, None)
        return total[start:stop] if start is not None else total

    def _dense(self, rows: Array, indices: Array) -> Array:
        dense = np.zeros((self.extent, *rows.shape[1:]), rows.dtype)
        np.add.at(dense, indices, rows)
        return dense

    def _reduced(self, sent: list[Array]) -> Array:
        given, wire = sent[0].dtype, WIRE.get(self.compression)
        if wire is None or given.kind in "iub" or given.itemsize <= wire.itemsize:
            return reduced(sent, self.op, *self.factors)
        return reduced([array.astype(wire) for array in sent], self.op, *self.factors).astype(given)


@dataclass(frozen=True)
class Blocking:
    """One call that waits."""

    call: Call


@dataclass(frozen=True)
class Together:
    """Calls that are under way at once.

    Attributes:
        calls: started by each rank in an order of its own; unnamed ones in that of the list.
        way: with handles: "handles" or "polled"; in TensorFlow what holds the calls: "function", "graph" or "jit".
        between: calls that wait, made while the others are under way.
        seed: of the ranks' orders.
    """

    calls: tuple[Call, ...]
    way: str
    between: tuple[Call, ...] = ()
    seed: int = 0

    def start_order(self, rank: int) -> list[int]:
        """In which this rank starts the calls that are its own."""
        own = self._own(rank)
        if self.way in ("graph", "function", "jit"):
            return own  # names of nodes depend on their order, and compiled calls run in it
        order = self._shuffled(rank, own, 0)
        unnamed = [n for n in own if self.calls[n].name is None]
        return [unnamed.pop(0) if self.calls[n].name is None else n for n in order]

    def wait_order(self, rank: int) -> list[int]:
        """In which this rank waits for them."""
        return self._shuffled(rank, self._own(rank), 1)

    def _own(self, rank: int) -> list[int]:
        return [n for n, call in enumerate(self.calls) if rank in call.members]

    def _shuffled(self, rank: int, own: list[int], which: int) -> list[int]:
        return [own[i] for i in np.random.default_rng([self.seed, rank, which]).permutation(len(own))]


@dataclass(frozen=True)
class AddSet:
    """All ranks register a process set."""

    process_set: int
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class RemoveSet:
    """All ranks forget it."""

    process_set: int


@dataclass(frozen=True)
class Objects:
    """A barrier, or Python objects: "barrier", "allgather_object" or "broadcast_object"."""

    kind: str
    members: tuple[int, ...]
    process_set: int
    root: int


@dataclass(frozen=True)
class Join:
    """Uneven numbers of allreduces, then a join.

    Attributes:
        calls: of the rank that makes most; the members that make fewer are absent from the later ones.
        made: how many of them each rank makes.
        at_once: starts all, then waits, where there are handles.
    """

    calls: tuple[Call, ...]
    made: tuple[int, ...]
    at_once: bool


Step = Union[Blocking, Together, AddSet, RemoveSet, Objects, Join]


def calls_of(step: Step) -> tuple[Call, ...]:
    """All calls that the step holds."""
    if isinstance(step, Blocking):
        return (step.call,)
    if isinstance(step, Together):
        return (*step.calls, *step.between)
    return step.calls if isinstance(step, Join) else ()


def sets_of(step: Step) -> set[int]:
    """Numbers of the process sets that it needs, without that of all ranks."""
    if isinstance(step, (RemoveSet, Objects)):
        return {step.process_set} - {0}
    return {call.process_set for call in calls_of(step)} - {0}


@dataclass(frozen=True)
class Program:
    """The steps of a program. Those numbered `chosen` run, all that need no process set which is not added."""

    framework: str
    ranks: int
    seed: str
    steps: tuple[Step, ...] = field(repr=False)
    chosen: tuple[int, ...] = field(repr=False, default=())

    def __str__(self) -> str:
        """What the worker makes the program of."""
        every = len(self.chosen) == len(self.steps)
        return f"{self.framework}.{self.ranks}.{self.seed}" + ("" if every else f":{','.join(map(str, self.chosen))}")

    def only(self, numbers: Sequence[int]) -> Program:
        """The program of these steps, as far as they can run alone."""
        added, chosen = set[int](), []
        for number in sorted(numbers):
            step = self.steps[number]
            if isinstance(step, AddSet):
                added.add(step.process_set)
            if sets_of(step) <= added:
                chosen.append(number)
        return Program(self.framework, self.ranks, self.seed, self.steps, tuple(chosen))
