"""Names of the calls of a process group."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from horovod.torch.distributed import call_names
from horovod.torch.distributed.call_names import CallNames

CALLS = st.lists(st.sampled_from("abc"), max_size=60)


def steps(count: int, *calls: str) -> list[list[str]]:
    names = CallNames("g")
    return [[names.next(call) for call in calls] for _ in range(count)]


def test_a_step_that_comes_again_has_the_names_of_the_one_before_last() -> None:
    found = steps(80, "a", "b", "b", "c")
    assert found[-1] == found[-1 - call_names.TURNS]
    assert len({name for step in found for name in step}) <= 8 * call_names.TURNS


def test_a_name_has_one_call_in_a_loop() -> None:
    names, calls = CallNames("g"), {}
    for step in range(100):
        for call in ("a", "b", "a", "c", "c"):
            name = names.next(call)
            assert step < 2 or calls.get(name, call) == call
            calls[name] = call


@given(CALLS)
def test_equal_calls_have_equal_names_on_all_ranks(calls: list[str]) -> None:
    one, other = CallNames("g"), CallNames("g")
    assert [one.next(call) for call in calls] == [other.next(call) for call in calls]


@given(CALLS)
def test_the_first_call_that_differs_has_one_name_on_all_ranks(calls: list[str]) -> None:
    one, other = CallNames("g"), CallNames("g")
    for call in calls:
        one.next(call), other.next(call)
    assert one.next("d") == other.next("e")


@given(CALLS)
def test_so_many_calls_in_a_row_have_names_of_their_own(calls: list[str]) -> None:
    names = CallNames("g")
    found = [names.next(call) for call in calls]
    turns = call_names.TURNS
    assert all(len(set(found[at : at + turns])) == len(found[at : at + turns]) for at in range(len(found)))


@given(CALLS, CALLS)
def test_after_a_call_about_which_ranks_disagreed_names_are_equal_again(before: list[str], after: list[str]) -> None:
    one, other = CallNames("g"), CallNames("g")
    for names, call in ((one, "d"), (other, "e")):
        for each in (*before, call):
            names.next(each)
        names.forget()
    assert [one.next(call) for call in after] == [other.next(call) for call in after]


def test_new_shapes_for_ever_do_not_fill_the_memory() -> None:
    names = CallNames("g")
    for number in range(3 * call_names._MOST_KINDS):
        names.next(number)
    assert len(names._kinds) <= call_names._MOST_KINDS
