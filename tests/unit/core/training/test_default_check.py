"""What is compared of an optimizer's parameters where nobody has asked: what ranks say, how it differs, and when."""

from __future__ import annotations

import math
import threading
import time
import warnings
from collections.abc import Sequence
from typing import Any

import pytest
from fakes.ranks import adopt, run_ranks

from horovod._core.errors import MismatchError
from horovod._core.life import session
from horovod._core.operations.collectives import Collectives
from horovod._core.settings import Settings
from horovod._core.tensors import byte_adapter
from horovod._core.training import default_check
from horovod._core.training.default_check import DefaultCheck, equal_by
from horovod._core.training.default_findings import (
    Form,
    Measure,
    forms_story,
    measures_story,
    packed_forms,
    packed_measures,
)
from horovod._core.training.digest_sum import agree, claim, read_claims, read_texts, with_claim, with_text


def summed(summands: Sequence[bytearray]) -> bytearray:
    return bytearray(sum(column) for column in zip(*summands))


def exchanged(told: dict[int, bytes], size: int, joined: Sequence[int] = ()) -> tuple[Any, Any]:
    counts = {rank: text.count(b"\n") + 1 for rank, text in told.items()}
    claims = read_claims(summed([with_claim(rank, size, claim(text, counts[rank])) for rank, text in told.items()]))
    late = [with_text(rank, claims, text) for rank, text in told.items() if rank not in joined]
    return claims, read_texts(summed(late), claims)


# ---- sums


def test_a_sum_holds_what_each_rank_says() -> None:
    told = {0: b"one", 1: b"another", 2: b"one", 4: b""}
    claims, said = exchanged(told, 5)
    assert not agree(claims)
    assert said == told
    assert claims[0] == claims[2] != claims[1]


def test_who_has_joined_says_nothing() -> None:
    claims, said = exchanged({0: b"a", 2: b"a"}, 4)
    assert list(claims) == [0, 2] and agree(claims)
    claims, said = exchanged({0: b"a", 1: b"bb", 2: b"c"}, 3, joined=[1])
    assert said == {0: b"a", 2: b"c"}


# ---- names and shapes


def forms(**shapes: str) -> bytes:
    return packed_forms(Form(name, form) for name, form in shapes.items())


def test_the_order_of_parameters_does_not_matter() -> None:
    assert forms(a="x", b="y") == forms(b="y", a="x") != forms(a="y", b="x")


def test_other_numbers_of_parameters_are_reported() -> None:
    two, four = forms(a="f", b="f"), forms(a="f", b="f", c="f", d="f")
    story = forms_story(*exchanged({0: two, 1: four}, 2))
    assert story == "Rank 1 has 4 parameters, rank 0 has 2: only rank 1 has 'c', 'd'."
    assert forms_story(*exchanged({0: two, 1: forms(a="f"), 2: four, 3: four, 4: two}, 5)).startswith(
        "Rank 1 has 1 parameter, ranks 2, 3 have 4, ranks 0, 4 have 2: only rank 0 has 'b'"
    )
    assert forms_story(exchanged({0: two, 1: four}, 2)[0], {}) == "Rank 1 has 4 parameters, rank 0 has 2."


def test_other_shapes_and_names_are_reported() -> None:
    claims, said = exchanged({0: forms(a="float32 [3]", b="float32 [1]"), 1: forms(a="float32 [4]", c="x")}, 2)
    assert forms_story(claims, said) == (
        "The parameters of rank 1 have other names or shapes than rank 0's: 'a' is float32 [4] on rank 1 and float32 "
        "[3] on rank 0; only rank 1 has 'c'; only rank 0 has 'b'."
    )


# ---- values


def measures(*values: float, used: bool = True, item_bytes: int = 4) -> bytes:
    return packed_measures([Measure("", used, item_bytes, value, abs(value)) for value in values])


def test_values_that_differ_are_reported() -> None:
    assert measures_story(["a", "b"], {0: measures(1, 2), 1: measures(1, 2)}) == ""
    assert measures_story(["a", "b"], {0: measures(1, 2), 1: measures(1, 3), 3: measures(1, 3)}) == (
        "1 of 2 parameters differ between the ranks: 'b' of ranks 1, 3 differs from rank 0's."
    )


def test_rounding_is_no_difference() -> None:
    assert measures_story(["a"], {0: measures(1), 1: measures(1 + 1e-6)}) == ""
    assert measures_story(["a"], {0: measures(1), 1: measures(1 + 1e-4)}) != ""
    assert measures_story(["a"], {0: measures(1, item_bytes=2), 1: measures(1 + 1e-4, item_bytes=2)}) == ""


def test_what_is_no_number_is_compared_too() -> None:
    assert measures_story(["a"], {0: measures(math.nan), 1: measures(math.nan)}) == ""
    assert measures_story(["a"], {0: measures(math.nan), 1: measures(1)}) != ""
    assert measures_story(["a"], {0: measures(math.inf), 1: measures(-math.inf)}) != ""


def test_what_no_rank_has_a_gradient_of_may_differ() -> None:
    assert measures_story(["a"], {0: measures(1, used=False), 1: measures(2, used=False)}) == ""
    assert measures_story(["a"], {0: measures(1, used=False), 1: measures(2)}) != ""


# ---- between ranks


class Program:
    """A rank's program: steps of one optimizer, each with one gradient."""

    def __init__(self, rank: int, **settings: Any) -> None:
        self.rank = rank
        object.__setattr__(session.require(), "settings", Settings([("test", settings)]))
        self.collectives = Collectives(byte_adapter.adapter)
        self.check = DefaultCheck("test", equal_by("hvd.broadcast()"), "hvd.Optimizer")
        self.gradients: list[int] = []

    def step(self, *values: float, shapes: str = "f", gradient: str = "gradient", wait: bool = True) -> None:
        names = [f"p{index}" for index in range(len(values))]
        self.check.begin(lambda: [Form(name, shapes) for name in names])
        self.gradients = [self.collectives.allreduce_async(bytearray(4), name=gradient, op=1)]
        if wait:
            self.check.confirm(self.ended)
            self.collectives.synchronize(self.gradients.pop())
        self.check.step_over(lambda: [Measure(n, True, 4, v, v) for n, v in zip(names, values)])

    def ended(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while not all(map(self.collectives.poll, self.gradients)):
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.005)
        return True


@pytest.fixture(autouse=True)
def _briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(default_check, "_HOLD_S", 0.5)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr(default_check.warnings, "warn", lambda text, **_: found.append(text))
    return found


def test_equal_ranks_are_silent(told: list[str]) -> None:
    def work(rank: int) -> bool:
        program = Program(rank)
        for step in range(5):
            program.step(1.0 * step, 2.0)
        return program.check.is_over

    assert run_ranks(3, work) == [True] * 3
    assert told == []


def test_two_threads_wait_for_it_at_once() -> None:
    def work(rank: int) -> list[Exception]:
        program = Program(rank)
        time.sleep(0.3 * rank)
        program.step(1.0, wait=False)
        errors: list[Exception] = []
        enter = adopt()

        def wait() -> None:
            enter()
            try:
                program.check.confirm(program.ended)
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=wait) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        program.collectives.synchronize(program.gradients.pop())
        return errors

    assert run_ranks(2, work) == [[], []]


def test_values_after_the_second_step_are_warned_of_once(told: list[str]) -> None:
    def work(rank: int) -> None:
        program = Program(rank)
        for _ in range(8):
            program.step(1.0, 2.0 + (rank == 1))

    run_ranks(3, work)
    (text,) = told
    assert text.startswith("After step 2 of an optimizer 1 of 2 parameters differ between the ranks: 'p1' of rank 1 ")
    assert "call hvd.broadcast() after" in text


def test_values_of_the_first_step_may_differ(told: list[str]) -> None:
    def work(rank: int) -> None:
        program = Program(rank)
        for step in range(8):
            program.step(1.0 + rank * (step < 1))

    run_ranks(2, work)
    assert told == []


@pytest.mark.parametrize("own", [{"gradient": "same"}, {}])
def test_other_numbers_fail_on_all_ranks(own: dict[str, str]) -> None:
    """Whether this rank's gradients are reduced nevertheless, or never will be."""

    def work(rank: int) -> str:
        program = Program(rank)
        with pytest.raises(MismatchError) as caught:
            program.step(*[1.0] * (2 + 2 * rank), **(own or {"gradient": f"of {rank}"}))
        with pytest.raises(MismatchError, match="Rank 1 has 4"):
            program.check.confirm(program.ended)
        return str(caught.value)

    one, other = run_ranks(2, work)
    assert one == other
    assert one.startswith("Rank 1 has 4 parameters, rank 0 has 2: only rank 1 has 'p2', 'p3'. All ranks must make")


def test_other_shapes_fail_on_all_ranks() -> None:
    def work(rank: int) -> None:
        with pytest.raises(MismatchError, match="'p0' is float32 .1. on rank 1 and float32 .0. on rank 0"):
            Program(rank).step(1.0, shapes=f"float32 [{rank}]")

    run_ranks(2, work)


def test_gradients_that_fail_before_the_claims_are_summed_wait_for_them() -> None:
    def work(rank: int) -> None:
        program = Program(rank)
        time.sleep(0.3 * rank)  # more than one look
        program.check.begin(lambda: [Form("p", f"float32 [{rank}]")])
        with pytest.raises(MismatchError, match="'p' is float32 .1. on rank 1 and float32 .0. on rank 0"):
            program.check.confirm(lambda timeout_s: True)

    run_ranks(2, work)


def test_claims_that_no_other_rank_makes_hold_gradients_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(default_check, "_GRACE_S", 0.4)

    def work(rank: int) -> list[float]:
        program = Program(rank)
        if rank:
            program.collectives.barrier()
            return []
        program.check.begin(lambda: [Form("p", "f")])
        begun = [time.monotonic()]
        for _ in range(2):
            program.check.confirm(lambda timeout_s: True)
            begun.append(time.monotonic())
        program.collectives.barrier()
        return [after - before for before, after in zip(begun, begun[1:])]

    (first, second), _ = run_ranks(2, work)
    assert second < 0.3 < first


@pytest.mark.parametrize("settings", [{"check_parameters": 0}, {"check_parameters": 2}, {"elastic": True}])
def test_it_is_off(settings: dict[str, Any], told: list[str]) -> None:
    def work(rank: int) -> None:
        program = Program(rank, **settings)
        for _ in range(5):
            program.step(*[1.0 * rank] * (1 + rank))
        assert program.check.is_over

    run_ranks(2, work)
    assert told == []


def test_a_rank_with_fewer_steps_joins() -> None:
    def work(rank: int) -> None:
        program = Program(rank)
        for _ in range(1 + 3 * rank):
            program.step(1.0)
        program.collectives.join()
        for _ in range(4):
            program.step(1.0)

    run_ranks(2, work)


def test_a_skipped_step_holds_nobody_up(told: list[str]) -> None:
    """Rank 1 does not step after its second gradient; what it says comes one step later."""

    def work(rank: int) -> None:
        program = Program(rank)
        for step in range(6):
            if rank == 1 and step == 1:
                program.check.step_over = lambda measures: None  # type: ignore[method-assign]
            program.step(1.0)
            program.check.__dict__.pop("step_over", None)

    run_ranks(2, work)
    assert told == []


def test_ranks_that_begin_with_different_optimizers_are_right() -> None:
    """Their gradients meet, as the names say which is which; see `have_common_names`."""

    def work(rank: int) -> list[bool]:
        one, other = Program(rank), Program(rank)
        for program in (one, other) if rank else (other, one):
            name = "one" if program is one else "other"
            program.check.begin(lambda name=name: [Form(name, "f")])  # type: ignore[misc]
            program.gradients = [program.collectives.allreduce_async(bytearray(4), name=name, op=1)]
        for program in (one, other) * 2:
            program.check.confirm(program.ended)
        return [program.check.is_over for program in (one, other)]

    assert run_ranks(2, work) == [[True, True]] * 2


def test_checks_are_numbered_by_their_first_reductions() -> None:
    def work(rank: int) -> None:
        first = Program(rank)
        others = [DefaultCheck("test", "", "") for _ in range(rank)]  # which only this rank makes
        second = Program(rank)
        first.step(1.0)
        second.step(1.0, 2.0)
        assert len(others) == rank

    run_ranks(2, work)


def test_without_warnings_python_is_as_before() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run_ranks(2, lambda rank: [Program(rank).step(1.0) for _ in range(3)])
