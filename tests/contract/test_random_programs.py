"""Random programs through the public interface: PyTorch, TensorFlow and NumPy on 2 to 4 ranks, every operation, type,
process set, group and handle; the results are compared with NumPy (`random_programs.programs`).

CI runs 50, `make matrices` 1,000 (see `matrices`). What fails is named with the shortest program that still fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Optional

import matrices
import numpy as np
import pytest
from fakes.arithmetic import truncated_quotient
from jobs import horovodrun, run
from jobs.needs import needs
from random_programs.draw import FRAMEWORKS, parsed, program
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
    calls_of,
)

from horovod._core.operations.reduce_ops import ReduceOp
from horovod._core.tensors import dtypes

WORKER = Path(__file__).with_name("program_worker.py")
SIZES = (2, 3, 4)
# Programs of the whole, and how many run in one job; CI's, of each framework: TensorFlow's take three times as long.
WHOLE, IN_A_JOB = 1000, 50
SHARES = {"numpy": 20, "torch": 20, "tensorflow": 10}
TURNS = ((4, 3, 2), (2, 4, 3))  # their ranks, by turns; four of TensorFlow take long on two cores
PATIENCE_S, SHORT_PATIENCE_S, STARTING_S = 60.0, 10.0, 120.0  # of a program; while one is shortened; of a job besides


# ---- which programs


@dataclass(frozen=True)
class Lot:
    """The programs of one job."""

    framework: str
    ranks: int
    first: int
    count: int

    def __str__(self) -> str:
        return f"{self.framework}-{self.ranks}-{self.first}"

    def programs(self, seed: int) -> list[Program]:
        """Them, of a seed."""
        numbers = range(self.first, self.first + self.count)
        return [program(self.framework, self.ranks, f"{seed}/{number}") for number in numbers]


def lots(whole: bool, seed: int) -> list[Lot]:
    """The jobs: every framework on every number of ranks; in CI every framework and every number once."""
    if whole:
        pairs = [(framework, ranks) for ranks in SIZES for framework in FRAMEWORKS]
        return [Lot(*pairs[n % len(pairs)], n * IN_A_JOB, IN_A_JOB) for n in range(WHOLE // IN_A_JOB)]
    turn = TURNS[seed % len(TURNS)]
    return [Lot(framework, ranks, 0, count) for (framework, count), ranks in zip(SHARES.items(), turn)]


# ---- how they went


def failures(events: Sequence[dict[str, Any]], programs: Sequence[Program]) -> dict[str, list[str]]:
    """What was wrong, by program; a rank that began one and did not end it hangs there, or was ended."""
    found: dict[str, list[str]] = {}
    for each in programs:
        of = {
            kind: {event["rank"]: event for event in events if (event["event"], event["program"]) == (kind, str(each))}
            for kind in ("begun", "ended")
        }
        texts = [f"rank {rank}: {text}" for rank, event in sorted(of["ended"].items()) for text in event["failures"]]
        texts += [f"rank {rank} did not come to its end" for rank in sorted(set(of["begun"]) - set(of["ended"]))]
        if texts:
            found[str(each)] = texts
    return found


def shortest(whole: Program, fails: Callable[[Program], bool]) -> Optional[Program]:
    """The program with as few steps as it needs to fail; None if the whole does not fail alone."""
    if not fails(whole):
        return None
    found = whole
    for number in reversed(whole.chosen):
        rest = found.only([other for other in found.chosen if other != number])
        if number in found.chosen and rest.chosen and fails(rest):
            found = rest
    return found


def went(programs: Sequence[Program], patience_s: float) -> tuple[dict[str, list[str]], str]:
    """Runs programs in one job: what was wrong, and how the job ended; both empty if all went well."""
    first, words = programs[0], ("--patience", patience_s, *programs)
    command = horovodrun(first.ranks, WORKER, *words, warm=first.framework)
    ended = run(command, patience_s=STARTING_S + max(patience_s, 5.0 * len(programs)))
    found = failures(ended.events, programs)
    count = len(ended.of("ended"))
    well = not found and ended.code == 0 and count == len(programs) * first.ranks
    return found, "" if well else f"code {ended.code}, {count} ends of programs\n{ended.output[-6000:]}"


def story(found: dict[str, list[str]], end: str) -> str:
    """What a failed test says."""
    texts = [f"{name}:\n  " + "\n  ".join(of[:4]) for name, of in list(found.items())[:3]]
    texts += [f"and {len(found) - 3} more programs"] if len(found) > 3 else []
    if found:
        first = parsed(next(iter(found)))
        short = shortest(first, lambda some: bool(went([some], SHORT_PATIENCE_S)[1]))
        if short is None:
            texts.append(f"{first} did not fail alone.")
        else:
            command = f"python -m horovod.runner -np {short.ranks} python tests/contract/{WORKER.name} {short}"
            steps = "\n  ".join(f"step {number}: {short.steps[number]}" for number in short.chosen)
            texts.append(f"The shortest that fails:\n  PYTHONPATH=python:tests {command}\n  {steps}")
    texts.append(f"All of them again: {matrices.repeated()} python -m pytest tests/contract/{Path(__file__).name}")
    return "\n".join([*texts, end[-2000:] if found else end])


@pytest.mark.matrix
@pytest.mark.timeout(420)
@pytest.mark.parametrize(
    "lot",
    [
        pytest.param(lot, marks=needs("tensorflow") if lot.framework == "tensorflow" else ())
        for lot in lots(matrices.whole(), matrices.seed())
    ],
    ids=str,
)
def test_programs(lot: Lot) -> None:
    found, end = went(lot.programs(matrices.seed()), PATIENCE_S)
    if end:
        pytest.fail(story(found, end), pytrace=False)


# ---- what draws and judges them


def test_a_seed_gives_the_same_program_again() -> None:
    for framework in FRAMEWORKS:
        first, again, other = (program(framework, 3, seed) for seed in ("1/1", "1/1", "1/2"))
        assert first == again == parsed(str(first))
        assert first.steps != other.steps


def test_the_programs_hold_everything() -> None:
    """Every operation in every variant, every type with every reduction that it has, of each framework."""
    for framework, able in FRAMEWORKS.items():
        steps = [step for n in range(WHOLE // 3) for step in program(framework, 2 + n % 3, f"1/{n}").steps]
        calls = [call for step in steps for call in calls_of(step)]
        assert {type(step) for step in steps} == {Blocking, Together, AddSet, RemoveSet, Objects, Join}
        assert {step.way for step in steps if isinstance(step, Together)} == set(able.ways)
        kinds = {"allreduce", "allgather", "broadcast", "alltoall", "reducescatter"} | (
            {"sparse"} if able.sparse else set()
        )
        assert {call.kind for call in calls} == kinds
        assert {call.kind for call in calls if call.grouped} == {"allreduce", "allgather", "reducescatter"}
        assert {call.kind for call in calls if call.in_place} == set(able.in_place)
        assert {call.form for call in calls} == set(able.forms)
        assert {call.compression for call in calls} == {"none", "fp16", "bf16"}
        reductions = {(call.op, part.dtype) for call in calls if call.kind == "allreduce" for part in call.parts}
        floats = {(op, dtype) for op in ReduceOp for dtype in dtypes.FLOATING}
        whole = {(op, n) for op in ReduceOp if op != ReduceOp.Adasum for n in range(len(dtypes.NAMES))}
        assert reductions == (floats | whole) - {(ReduceOp.Average, dtypes.BOOL)}
        moved = {
            part.dtype for call in calls if call.kind in ("allgather", "broadcast", "alltoall") for part in call.parts
        }
        assert moved == set(range(len(dtypes.NAMES)))
        assert any(part.shape(0) == () for call in calls for part in call.parts)
        assert any(0 in part.shape(0) for call in calls for part in call.parts)
        assert any(call.splits for call in calls) and any(call.absent for call in calls)
        assert {len(call.members) for call in calls} == {1, 2, 3, 4} and None in {call.name for call in calls}


def test_ci_runs_a_twentieth_of_every_framework_and_size() -> None:
    assert sum(lot.count for lot in lots(True, 1)) == WHOLE == 20 * sum(lot.count for lot in lots(False, 1))
    assert {(lot.framework, lot.ranks) for lot in lots(True, 1)} == {(f, n) for f in FRAMEWORKS for n in SIZES}
    for seed in range(3):
        some = lots(False, seed)
        assert {lot.framework for lot in some} == set(FRAMEWORKS) and {lot.ranks for lot in some} == set(SIZES)


def test_unnamed_calls_start_in_one_order_on_all_ranks() -> None:
    calls = tuple(Call("broadcast", (), (0, 1, 2), 0, name, 0) for name in ("a", None, "b", None, "c", None))
    orders = [Together(calls, "handles", seed=seed).start_order(rank) for seed in range(5) for rank in range(3)]
    assert len({tuple(order) for order in orders}) > 5
    assert {tuple(n for n in order if calls[n].name is None) for order in orders} == {(1, 3, 5)}


# Of float32, three rows of one: (kind, more) -> what member 1 of ranks 0 and 2 receives of 0, 1, 2 and 10, 11, 12.
BY_HAND: tuple[tuple[str, dict[str, Any], list[float]], ...] = (
    ("allreduce", {}, [10, 12, 14]),
    ("allreduce", {"op": ReduceOp.Average, "factors": (1.0, 0.5)}, [2.5, 3, 3.5]),
    ("allreduce", {"op": ReduceOp.Max, "factors": (-1.0, 1.0)}, [0, -1, -2]),
    ("allreduce", {"op": ReduceOp.Min, "absent": (0,)}, [10, 11, 12]),
    ("allreduce", {"op": ReduceOp.Average, "absent": (0,)}, [5, 5.5, 6]),
    ("allgather", {}, [0, 1, 2, 10, 11, 12]),
    ("broadcast", {"root": 2}, [10, 11, 12]),
    ("broadcast", {"root": 0}, [0, 1, 2]),
    ("alltoall", {"splits": ((1, 2), (0, 2))}, [1, 2, 10, 11]),
    ("reducescatter", {}, [14]),
    ("sparse", {"extent": 2}, [12, 24]),
)


@pytest.mark.parametrize(("kind", "more", "right"), BY_HAND, ids=lambda value: str(value)[:40])
def test_expected_values(kind: str, more: dict[str, Any], right: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn(part: Part, rng: object, index: int, op: ReduceOp) -> Any:
        return np.arange(3, dtype=np.float32) + 10 * index

    monkeypatch.setattr(Part, "drawn", drawn)
    monkeypatch.setattr(Call, "indices", lambda call, rank: np.array([1, 0, 1]))
    call = Call(kind, (Part(dtypes.FLOAT32, (3, 3), ()),), (0, 2), 1, None, 0, **more)
    assert call.expected(2)[0].tolist() == right


def test_averages_of_integers_are_exact() -> None:
    for dtype in (np.int64, np.uint64, np.int8):
        limits = np.iinfo(dtype)
        values = [limits.min, limits.min + 1, limits.max, limits.max - 1, 7]
        right = [abs(value) // 3 * (1 if value >= 0 else -1) for value in values]
        assert truncated_quotient(np.array(values, dtype), 3).tolist() == right


def test_a_rank_that_does_not_come_to_the_end_is_a_failure() -> None:
    some = [program("numpy", 2, "1/1"), program("numpy", 2, "1/2")]

    def event(kind: str, rank: int, of: Program, *texts: str) -> dict[str, Any]:
        return {"event": kind, "rank": rank, "program": str(of), "failures": list(texts)}

    events = [event(kind, rank, some[0]) for kind in ("begun", "ended") for rank in (0, 1)]
    assert failures(events, some) == {}
    events += [event("begun", 0, some[1]), event("begun", 1, some[1]), event("ended", 1, some[1], "3 is not 4")]
    assert failures(events, some) == {str(some[1]): ["rank 1: 3 is not 4", "rank 0 did not come to its end"]}


def test_the_shortest_program_keeps_the_sets_that_it_needs() -> None:
    call = Call("allreduce", (), (0, 1), 1, None, 0)
    steps: tuple[Step, ...] = (AddSet(2, (0,)), AddSet(1, (0, 1)), Objects("barrier", (0, 1), 0, 0), Blocking(call))
    whole = Program("numpy", 2, "1/1", steps, (0, 1, 2, 3))
    assert whole.only([0, 2, 3]).chosen == (0, 2)  # its set is missing
    short = shortest(whole, lambda some: 3 in some.chosen)
    assert short is not None and short.chosen == (1, 3) and str(short) == "numpy.2.1/1:1,3"
    assert shortest(whole, lambda some: False) is None
