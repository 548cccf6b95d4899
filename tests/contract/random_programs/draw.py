"""Makes up a program from a seed: the same on all ranks, and again with the same seed. Pure.

`FRAMEWORKS` says what each framework has. Names come back with other types, shapes and process sets, and calls as they
were or changed in one thing, so that what is kept of a call is made, used and thrown away.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Optional

from cases import reduce_ops_of
from random_programs.programs import (
    AddSet,
    Blocking,
    Call,
    Join,
    Objects,
    Part,
    Program,
    RemoveSet,
    Step,
    Together,
    sets_of,
)

from horovod._core.operations.reduce_ops import ReduceOp
from horovod._core.tensors import dtypes


@dataclass(frozen=True)
class Abilities:
    """What the programs of a framework hold.

    Attributes:
        in_place: kinds with a variant that changes its tensors.
        forms: of inputs, see `Call`.
        ways: of calls that are under way at once, see `Together`, with weights.
        sparse: it has sparse tensors.
        barrier: it has barriers.
    """

    in_place: tuple[str, ...]
    forms: tuple[str, ...]
    ways: dict[str, int]
    sparse: bool = True
    barrier: bool = True


_HANDLES = {"handles": 3, "polled": 1}
FRAMEWORKS = {
    "numpy": Abilities(("allreduce", "broadcast"), ("plain",), _HANDLES, sparse=False),
    "torch": Abilities(("allreduce", "broadcast"), ("plain", "plain", "gappy", "gradient"), _HANDLES),
    "tensorflow": Abilities(("broadcast",), ("plain",), {"function": 3, "graph": 2, "jit": 1}, barrier=False),
}
# A function or a graph takes as long to make as hundreds of eager calls.
_WEIGHTS = {"blocking": 5, "together": 4, "again": 4, "objects": 1, "add": 2, "remove": 1, "join": 1}
_WEIGHTS_OF = {"tensorflow": {**_WEIGHTS, "blocking": 10, "together": 1}}

_KINDS = ("allreduce", "allreduce", "allreduce", "allgather", "broadcast", "alltoall", "reducescatter")
_ROWS = (0, 1, 1, 2, 3, 4, 5, 8, 17, 64, 300)
_MANY = (4096, 20000, 70001)
_TAILS: tuple[tuple[int, ...], ...] = ((), (), (), (1,), (3,), (2, 3), (4, 1, 2), (0,), (2, 0))
_FACTORS = ((1.0, 1.0), (1.0, 1.0), (1.0, 1.0), (0.5, 1.0), (1.0, 0.25), (2.0, 0.5), (-1.0, 1.0), (1.0, -2.0))
_WITH_GRADIENTS = (dtypes.FLOAT16, dtypes.BFLOAT16, dtypes.FLOAT32, dtypes.FLOAT64)
_OF_SPARSE = (dtypes.FLOAT32, dtypes.FLOAT64, dtypes.INT32, dtypes.INT64)
_EIGHT_BITS = (dtypes.FLOAT8_E4M3FN, dtypes.FLOAT8_E5M2)
_EVERY = tuple(range(len(dtypes.NAMES)))


def program(framework: str, ranks: int, seed: str) -> Program:
    """The program of this seed."""
    return _Drawer(framework, ranks, seed).program()


def parsed(text: str) -> Program:
    """The program that `str` of one names: FRAMEWORK.RANKS.SEED, and the numbers of some steps behind a colon."""
    name, _, chosen = text.partition(":")
    framework, ranks, seed = name.split(".", 2)
    whole = program(framework, int(ranks), seed)
    return whole.only([int(number) for number in chosen.split(",")]) if chosen else whole


class _Drawer:
    def __init__(self, framework: str, ranks: int, seed: str) -> None:
        self._rng = random.Random(f"{framework}.{ranks}.{seed}")
        self._framework, self._ranks, self._seed = framework, ranks, seed
        self._able = FRAMEWORKS[framework]
        self._everybody = tuple(range(ranks))
        self._sets: dict[int, tuple[int, ...]] = {}  # those that are registered
        self._added = 0

    def program(self) -> Program:
        steps: list[Step] = []
        for _ in range(self._rng.randint(6, 14)):
            steps += self._steps(steps)
        steps += [RemoveSet(number) for number in self._sets]
        return Program(self._framework, self._ranks, self._seed, tuple(steps), tuple(range(len(steps))))

    # ---- steps

    def _steps(self, before: Sequence[Step]) -> list[Step]:
        kind = self._one_of(_WEIGHTS_OF.get(self._framework, _WEIGHTS))
        if kind == "again" and (again := self._again(before)):
            return again
        return [self._step(kind)]

    def _step(self, kind: str) -> Step:
        if kind == "add" and (free := self._free_set()):
            self._added += 1
            self._sets[self._added] = free
            return AddSet(self._added, free)
        if kind == "remove" and self._sets:
            number = self._rng.choice(list(self._sets))
            del self._sets[number]
            return RemoveSet(number)
        if kind == "objects":
            number, members = self._members()
            kinds = ["allgather_object", "broadcast_object", *(["barrier"] if self._able.barrier else [])]
            return Objects(self._rng.choice(kinds), members, number, self._rng.choice(members))
        if kind == "join":
            return self._join()
        return self._together() if kind == "together" else Blocking(self._call("blocking", self._name()))

    def _again(self, before: Sequence[Step]) -> list[Step]:
        """An earlier step some times more, with other values, as training does it; then perhaps another change."""
        sets = {0, *self._sets}
        fit = [step for step in before if isinstance(step, (Blocking, Together)) and sets_of(step) <= sets]
        fit = [step for step in fit if isinstance(step, Blocking) or step.way in _HANDLES]
        if not fit:
            return []
        step, steps = self._rng.choice(fit), list[Step]()
        changes = [False] * self._rng.randint(1, 3) + [True] * self._rng.randint(0, 2)
        for changed in changes:
            if isinstance(step, Blocking):
                step = Blocking(self._like(step.call, changed))
            else:
                calls = tuple(self._like(call, changed and self._chance(0.5)) for call in step.calls)
                step = replace(step, calls=calls, seed=self._rng.randrange(2**32))
            steps.append(step)
        return steps

    def _like(self, call: Call, changed: bool) -> Call:
        """The call with other values, and perhaps with other rows, factors, operation, root or variant."""
        more: dict[str, Any] = {"seed": self._rng.randrange(2**32)}
        parts = call.parts
        scalable = all(part.dtype != dtypes.BOOL and part.values != "wide" for part in parts)
        what = self._rng.choice(("rows", "factors", "op", "root", "variant")) if changed else ""
        if what == "rows" and call.splits is None and all(part.rows for part in parts):
            step = len(call.members) if call.kind == "alltoall" else 1
            rows = [tuple(step * self._rng.choice(_ROWS[:7]) for _ in call.members) for _ in parts]
            if call.kind in ("allreduce", "broadcast", "reducescatter"):
                rows = [each[:1] * len(each) for each in rows]
            more["parts"] = tuple(replace(part, rows=each) for part, each in zip(parts, rows))
        elif what == "factors" and call.kind in ("allreduce", "reducescatter") and scalable:
            more["factors"] = self._rng.choice(_FACTORS)
        elif what == "op" and call.op.row.linear and scalable and call.kind in ("allreduce", "reducescatter", "sparse"):
            whole = call.kind != "sparse" or parts[0].dtype in dtypes.FLOATING
            more["op"] = ReduceOp.Average if whole and call.op == ReduceOp.Sum else ReduceOp.Sum
        elif what == "root":
            more["root"] = self._rng.choice(call.members)
        elif what == "variant" and call.kind in self._able.in_place and call.form == "plain":
            more["in_place"] = call.compression == "none" and not call.in_place
        return replace(call, **more)

    def _together(self) -> Together:
        way = self._one_of(self._able.ways)
        names = self._rng.sample("abcdefgh", self._rng.randint(2, 6))
        # Unnamed nodes of a graph are counted: all ranks must have the same ones.
        in_graph = way not in _HANDLES
        calls = tuple(self._call(way, name if in_graph or self._chance(0.7) else None) for name in names)
        between = ()
        if not in_graph and self._chance(0.3):
            between = (self._call("blocking", "between" if self._chance(0.5) else None),)
        return Together(calls, way, between, self._rng.randrange(2**32))

    def _join(self) -> Join:
        made = tuple(self._rng.randrange(4) for _ in self._everybody)
        calls = []
        for n in range(max(made)):
            absent = tuple(rank for rank in self._everybody if made[rank] <= n)
            calls.append(self._reduction("join", f"join.{n}" if self._chance(0.7) else None, "allreduce", absent))
        return Join(tuple(calls), made, self._chance(0.5))

    # ---- calls

    def _call(self, way: str, name: Optional[str]) -> Call:
        kind = self._rng.choice(_KINDS)
        if kind == "allreduce" and self._able.sparse and way != "jit" and self._chance(0.15):
            return self._sparse(name)
        if kind in ("allreduce", "reducescatter"):
            return self._reduction(way, name, kind)
        number, members = self._members()
        form, of_types = self._form(way, kind)
        in_place = kind in self._able.in_place and form == "plain" and self._chance(0.4)
        grouped = kind == "allgather" and self._chance(0.4)
        parts, splits = [], None
        for _ in range(self._rng.randint(1, 4) if grouped else 1):
            rows = [self._rows() for _ in members]
            if kind == "broadcast" or way == "jit":  # where XLA must know how much arrives
                rows = [rows[0]] * len(members)
            if kind == "alltoall":
                rows, splits = self._split(way, members, rows)
            parts.append(Part(self._rng.choice(of_types), tuple(rows), self._tail(rows)))
        if kind == "broadcast" and self._chance(0.2):
            parts = [Part(parts[0].dtype, (), ())]
        return Call(
            kind, tuple(parts), members, number, name, self._rng.randrange(2**32), grouped=grouped, in_place=in_place,
            root=self._rng.choice(members), splits=splits, form=form,
        )  # fmt: skip

    def _split(self, way: str, members: Sequence[int], rows: Sequence[int]) -> tuple[list[int], Any]:
        if way == "jit" or self._chance(0.4):
            equal = way == "jit"
            return [len(members) * (rows[0] if equal else n) for n in rows], None
        splits = tuple(tuple(self._rng.choice((0, 0, 1, 2, 3, 7)) for _ in members) for _ in members)
        return [sum(row) + self._rng.choice((0, 0, 2)) for row in splits], splits  # some rows go nowhere

    def _reduction(self, way: str, name: Optional[str], kind: str, absent: tuple[int, ...] = ()) -> Call:
        number, members = (0, self._everybody) if way == "join" else self._members()
        form, of_types = self._form(way, kind)
        parts, op = self._reduced_parts(kind, members, number, of_types)
        factors = self._rng.choice(_FACTORS)
        if any(part.dtype == dtypes.BOOL or part.values == "wide" for part in parts):
            factors = (1.0, 1.0)
        if absent and not op.row.linear:  # the value that stands for those who have joined would be multiplied
            factors = (1.0, factors[1])
        waits = way in ("blocking", "function", "graph", "jit")
        in_place = kind in self._able.in_place and form == "plain" and self._chance(0.4)
        # The ways from float64 to 16 bits differ in whether they round once or twice.
        once = all(part.dtype != dtypes.FLOAT64 or part.values == "whole" for part in parts)
        compression = "none"
        if waits and once and not in_place and op != ReduceOp.Adasum and self._chance(0.2):
            compression = self._rng.choice(("fp16", "bf16"))
        return Call(
            kind, parts, members, number, name, self._rng.randrange(2**32), op, factors,
            len(parts) > 1 or self._chance(0.2), in_place, compression, form=form, absent=absent,
        )  # fmt: skip

    def _reduced_parts(
        self, kind: str, members: Sequence[int], number: int, of_types: Sequence[int]
    ) -> tuple[tuple[Part, ...], ReduceOp]:
        first = self._rng.choice(of_types)
        ops = [op for op in reduce_ops_of(first, len(members)) if op != ReduceOp.Adasum or number == 0]
        if kind == "reducescatter":
            ops = [op for op in ops if op.row.linear]
        op = self._rng.choice(ops)
        fit = [dtype for dtype in of_types if op in reduce_ops_of(dtype, len(members))]
        parts = []
        for dtype in [first, *self._rng.choices(fit, k=self._rng.choice((0, 0, 0, 1, 2, 4)))]:
            rows = [self._rows()] * len(members)
            shape = ((), ()) if kind == "allreduce" and self._chance(0.15) else (tuple(rows), self._tail(rows))
            parts.append(Part(dtype, *shape, self._values(dtype, op)))
        return tuple(parts), op

    def _values(self, dtype: int, op: ReduceOp) -> str:
        if op == ReduceOp.Adasum:
            return "real"
        if dtype == dtypes.BOOL or op == ReduceOp.Product or self._chance(0.6):
            return "whole"
        return "real" if dtype in dtypes.FLOATING else "wide"

    def _sparse(self, name: Optional[str]) -> Call:
        number, members = self._members()
        dtype = self._rng.choice(_OF_SPARSE)
        op = self._rng.choice((ReduceOp.Sum, ReduceOp.Average)) if dtype in dtypes.FLOATING else ReduceOp.Sum
        part = Part(dtype, tuple(self._rng.randrange(6) for _ in members), self._rng.choice(((), (3,))))
        seed, extent = self._rng.randrange(2**32), self._rng.randint(1, 9)
        return Call("sparse", (part,), members, number, name or f"sparse.{seed}", seed, op, extent=extent)

    # ---- details

    def _form(self, way: str, kind: str) -> tuple[str, Sequence[int]]:
        form = self._rng.choice(self._able.forms)
        if form == "gradient":
            return (form, _WITH_GRADIENTS) if way == "blocking" else ("plain", _EVERY)
        return form, _EVERY

    def _free_set(self) -> tuple[int, ...]:
        """Ranks that are no set yet; empty if the one drawn is."""
        drawn = tuple(sorted(self._rng.sample(self._everybody, self._rng.randint(1, self._ranks))))
        return () if drawn == self._everybody or drawn in self._sets.values() else drawn

    def _members(self) -> tuple[int, tuple[int, ...]]:
        sets = {0: self._everybody, **self._sets}
        number = self._rng.choice(list(sets))
        return number, sets[number]

    def _name(self) -> Optional[str]:
        return self._rng.choice("abcdefgh") if self._chance(0.7) else None

    def _rows(self) -> int:
        return self._rng.choice(_MANY if self._chance(0.03) else _ROWS)

    def _tail(self, rows: Sequence[int]) -> tuple[int, ...]:
        return () if max(rows) > max(_ROWS) * self._ranks else self._rng.choice(_TAILS)

    def _chance(self, share: float) -> bool:
        return self._rng.random() < share

    def _one_of(self, weights: dict[str, int]) -> str:
        return self._rng.choices(list(weights), list(weights.values()))[0]
