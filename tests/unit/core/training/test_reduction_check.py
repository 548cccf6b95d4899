"""What ranks compare of their first reductions by a name where nobody has asked, whatever only one of them knows."""

from __future__ import annotations

import threading
import time
import weakref
from typing import Any, Optional

import pytest
from fakes.ranks import adopt, run_ranks

from horovod._core.errors import MismatchError
from horovod._core.life import session
from horovod._core.operations.collectives import Collectives
from horovod._core.settings import Settings
from horovod._core.tensors import byte_adapter
from horovod._core.training import default_check, reduction_check
from horovod._core.training.default_findings import Form
from horovod._core.training.reduction_check import Reduced, ReductionCheck, Value


class Variable:
    """What a weak reference can be made to."""

    def __init__(self, value: float) -> None:
        self.value = value


class Program:
    """A rank's program, which reduces lists of variables by one name."""

    def __init__(self, **settings: Any) -> None:
        object.__setattr__(session.require(), "settings", Settings([("test", settings)]))
        self.collectives = Collectives(byte_adapter.adapter)
        self.check = ReductionCheck("test", "gradients")

    def reduce(self, variables: list[Variable], change: float = 0.0, shape: str = "[1]", names: str = "v") -> None:
        self.compare(variables, shape, names)
        self.collectives.allreduce(bytearray(4), name="gradient", op=1)
        for variable in variables:
            variable.value += change

    def compare(self, variables: list[Variable], shape: str = "[1]", names: str = "v") -> None:
        forms = [Form(f"{i}.{names}{i}", f"float32 {shape}") for i in range(len(variables))]
        refs, own = list(map(weakref.ref, variables)), [f"{names}{i}" for i in range(len(variables))]
        now = [Value(4, v.value, abs(v.value)) for v in variables]
        if not self.check.is_over:
            self.check.compare(Reduced(forms, refs, own, lambda: now, "Call hvd.broadcast()."))


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr(default_check.warnings, "warn", lambda text, **_: found.append(text))
    return found


@pytest.fixture(autouse=True)
def _briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reduction_check, "_PATIENCE_S", 0.5)


def stepped(starts: dict[int, list[float]], steps: int = 10, broadcast_after: Optional[int] = None) -> list[bool]:
    """Ranks step on variables that start so; whether the check is over at the end."""

    def work(rank: int) -> bool:
        program, variables = Program(), [Variable(value) for value in starts[rank]]
        for step in range(steps):
            program.reduce(variables, 1.0)
            if step + 1 == broadcast_after:
                for variable, start in zip(variables, starts[0]):
                    variable.value = start + step + 1
        return program.check.is_over

    return run_ranks(len(starts), work)


def test_equal_ranks_are_silent_and_soon_done(told: list[str]) -> None:
    assert stepped({0: [1.0, 2.0], 1: [1.0, 2.0], 2: [1.0, 2.0]}, steps=8) == [True] * 3
    assert told == []


def test_other_values_are_warned_of_once(told: list[str]) -> None:
    stepped({0: [1.0, 2.0], 1: [1.0, 3.0], 2: [1.0, 2.0]})
    (text,) = told
    assert "1 of 2 parameters differ between the ranks: 'v1' of rank 1 differs from rank 0's" in text
    assert "Call hvd.broadcast()." in text


def test_a_broadcast_after_the_first_step_is_silent(told: list[str]) -> None:
    stepped({0: [1.0, 2.0], 1: [1.0, 3.0]}, broadcast_after=1)
    assert told == []


def test_reductions_that_change_nothing_are_no_steps(told: list[str]) -> None:
    def work(rank: int) -> None:
        program, variables = Program(), [Variable(float(rank))]
        for step in range(10):
            program.reduce(variables, float(step == 4))

    run_ranks(2, work)
    assert told == []


def test_what_does_not_change_may_differ(told: list[str]) -> None:
    def work(rank: int) -> None:
        program, one, other = Program(), Variable(1.0), Variable(float(rank))
        for _ in range(10):
            program.reduce([one, other])
            one.value += 1.0

    run_ranks(2, work)
    assert told == []


def test_other_numbers_and_shapes_fail_on_all_ranks() -> None:
    def work(rank: int) -> None:
        program = Program()
        with pytest.raises(MismatchError, match="Rank 1 has 4 parameters, rank 0 has 2: only rank 1 has '2.v2', "):
            program.reduce([Variable(1.0) for _ in range(2 + 2 * rank)])
        program = Program()
        program.check = ReductionCheck("test", "others")
        with pytest.raises(MismatchError, match="'0.v0' is float32 .4. on rank 1 and float32 .3. on rank 0"):
            program.reduce([Variable(1.0)], shape=f"[{3 + rank}]")

    run_ranks(2, work)


def test_names_may_differ(told: list[str]) -> None:
    def work(rank: int) -> None:
        program, variables = Program(), [Variable(1.0), Variable(2.0)]
        for _ in range(10):
            program.reduce(variables, 1.0, names=f"of_{rank}_")

    run_ranks(2, work)
    assert told == []


def test_lists_that_take_turns_are_compared_each(told: list[str]) -> None:
    def work(rank: int) -> None:
        program, one, other = Program(), [Variable(1.0)], [Variable(1.0), Variable(2.0 + rank)]
        for _ in range(5):
            program.reduce(one, 1.0)
            program.reduce(other, 1.0)

    run_ranks(2, work)
    (text,) = told
    assert "1 of 2 parameters differ" in text


def test_many_lists_that_take_turns_are_compared_each(told: list[str]) -> None:
    """As the four networks of a CycleGAN, whose tapes all reduce by one name in eager mode."""

    def work(rank: int) -> None:
        program, networks = Program(), [[Variable(1.0)] for _ in range(4)]
        networks[3].append(Variable(2.0 + rank))
        for _ in range(5):
            for network in networks:
                program.reduce(network, 1.0)
        assert program.check.is_over

    run_ranks(2, work)
    (text,) = told
    assert "1 of 2 parameters differ" in text


@pytest.mark.parametrize("first", [1, 2])
def test_lists_that_may_run_in_any_order_are_not_compared(told: list[str], first: int) -> None:
    def work(rank: int) -> None:
        program, one, other = Program(), [Variable(1.0)], [Variable(9.0) for _ in range(first)]
        for variables in (one, other):
            program.check.expect(list(map(weakref.ref, variables)))
        for _ in range(5):
            for variables in (one, other) if rank else (other, one):
                program.reduce(variables, 1.0)
        assert program.check.is_over

    run_ranks(2, work)
    assert told == []


def test_threads_may_reduce_by_one_name_at_once(told: list[str]) -> None:
    def work(rank: int) -> None:
        program, variables = Program(), [Variable(1.0)]
        enter, failures = adopt(), []

        def reduce() -> None:
            enter()
            try:
                for _ in range(4):
                    program.compare(variables)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=reduce) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == [] and program.check.is_over

    for _ in range(20):
        run_ranks(2, work)
    assert told == []


def test_a_late_rank_is_waited_for_only_so_long(told: list[str]) -> None:
    def work(rank: int) -> float:
        program, variables = Program(), [Variable(1.0 + rank)]
        time.sleep(1.5 * rank)
        begun = time.monotonic()
        for _ in range(12):
            program.reduce(variables, 1.0)
        assert program.check.is_over
        return time.monotonic() - begun

    _, late = run_ranks(2, work)
    assert late < 1.0
    assert len(told) <= 1


def test_a_rank_that_compares_nothing_holds_up_nobody_twice(told: list[str]) -> None:
    def work(rank: int) -> float:
        program = Program(**({} if rank else {"check_parameters": 0}))
        begun = time.monotonic()
        for _ in range(reduction_check._LOOKS + 1):
            program.reduce([Variable(1.0)], 1.0)
        assert program.check.is_over
        return time.monotonic() - begun

    assert max(run_ranks(2, work)) < 1.5
    assert told == []


def test_ranks_with_fewer_reductions_join(told: list[str]) -> None:
    def work(rank: int) -> None:
        program, variables = Program(), [Variable(1.0)]
        for _ in range(2 + 3 * rank):
            program.reduce(variables, 1.0)
        program.collectives.join()
        for _ in range(4):
            program.reduce(variables, 1.0)

    run_ranks(2, work)
    assert told == []


@pytest.mark.parametrize("settings", [{"check_parameters": 0}, {"check_parameters": 2}, {"elastic": True}])
def test_it_is_off(settings: dict[str, Any], told: list[str]) -> None:
    def work(rank: int) -> None:
        program = Program(**settings)
        program.reduce([Variable(1.0) for _ in range(1 + rank)])
        assert program.check.is_over

    run_ranks(2, work)
    assert told == []


def test_a_later_session_is_not_compared() -> None:
    """Its ranks may stand at other counts."""
    check: list[ReductionCheck] = []

    def work(rank: int) -> None:
        program = Program()
        check.append(program.check)
        program.reduce([Variable(1.0)])

    run_ranks(2, work)
    run_ranks(2, lambda rank: check[rank].compare(Reduced([], [], [], list, "")))
    assert [each.is_over for each in check] == [True, True]
