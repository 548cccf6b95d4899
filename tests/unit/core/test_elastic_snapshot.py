"""What a commit keeps: deep copies in memory that is used again, finished in the background."""

from __future__ import annotations

import os
import threading
from typing import Any, Callable

import pytest

from horovod._core.training.elastic import snapshot
from horovod._core.training.elastic.snapshot import Snapshot
from horovod._core.training.elastic.state import ObjectState, whole_or_not


class Block:
    """A tensor of the tests; its copies are finished in the background, when they may be."""

    may_be_finished = threading.Event()
    may_be_finished.set()

    def __init__(self, *numbers: int) -> None:
        self.numbers = list(numbers)


def copied(block: Block, old: Any) -> tuple[Block, Callable[[], None]]:
    frozen = list(block.numbers)
    kept = old if isinstance(old, Block) else Block()

    def later() -> None:
        assert Block.may_be_finished.wait(60)
        if 666 in frozen:
            raise MemoryError("no room")
        kept.numbers = frozen

    return kept, later


snapshot.register(Block, copied)


def test_it_is_of_the_moment_although_it_is_finished_later() -> None:
    block, losses = Block(1, 2), [1.0]
    Block.may_be_finished.clear()
    try:
        taken = Snapshot({"deep": [{"block": block}], "losses": losses})  # does not wait
        block.numbers[0] = 9
        losses.append(2.0)
    finally:
        Block.may_be_finished.set()
    assert taken.value["deep"][0]["block"].numbers == [1, 2]
    assert taken.value["losses"] == [1.0]


def test_the_thread_finishes_it() -> None:
    assert Snapshot([Block(1)]).value[0].numbers == [1]
    # Again by the same thread.
    assert Snapshot([Block(2)]).value[0].numbers == [2]


def test_two_memories_take_turns() -> None:
    block = Block(0)
    taken = [Snapshot({"block": block})]
    for number in range(1, 6):
        block.numbers[0] = number
        taken.append(Snapshot({"block": block}, taken[-1]))
        # The one before stays as it is until the next one.
        assert [each.value["block"].numbers for each in taken[-2:]] == [[number - 1], [number]]
    memories = [id(each.value["block"]) for each in taken]
    assert memories[0::2] == memories[:1] * 3 and memories[1::2] == memories[1:2] * 3
    assert memories[0] != memories[1]


def test_what_is_pinned_stays() -> None:
    first = Snapshot([Block(1)])
    first.pin()
    second = Snapshot([Block(2)], first)
    third = Snapshot([Block(3)], second)
    assert [each.value[0].numbers for each in (first, second, third)] == [[1], [2], [3]]
    first.pin(-1)


def test_a_value_that_stands_twice_is_copied_once() -> None:
    block = Block(1)
    value = Snapshot({"a": block, "b": [block]}).value
    assert value["a"] is value["b"][0] is not block


def test_what_the_background_meets_is_raised_where_it_is_waited_for() -> None:
    taken = Snapshot([Block(666)])
    for _ in range(2):
        with pytest.raises(MemoryError, match="no room"):
            taken.wait()
    with pytest.raises(MemoryError):
        Snapshot([Block(1)], taken)
    snapshot.settle()


def test_a_forked_child_has_a_thread_of_its_own() -> None:
    Snapshot([Block(1)]).wait()
    child = os.fork()
    if not child:
        code = 1
        try:
            code = 0 if Snapshot([Block(2)]).value[0].numbers == [2] else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_sync_that_fails_leaves_what_was_saved_however_often_it_saves() -> None:
    block = Block(0)
    state = ObjectState(lambda value: value, lambda: 0, block=block)
    for number in (1, 2):
        state.block.numbers = [number]
        state.save()
    with pytest.raises(RuntimeError), whole_or_not(state):
        for number in (7, 8, 9):
            state.block.numbers = [number]
            state.save()
        raise RuntimeError("a rank is lost")
    state.restore()
    assert state.block.numbers == [2]
    # And it goes on from there.
    state.block.numbers = [3]
    state.save()
    state.block.numbers = [4]
    state.restore()
    assert state.block.numbers == [3]


def test_arrays_in_attributes() -> None:
    numpy = pytest.importorskip("numpy")
    from horovod.numpy.elastic import ObjectState as NumpyState

    columns = numpy.arange(12.0).reshape(3, 4)[:, 1:3]
    state = NumpyState(weights={"a": [numpy.zeros(5)]}, columns=columns, names=numpy.array([["x"], None], dtype=object))
    places = []
    for number in range(1, 5):
        state.weights["a"][0] += 1
        state.columns[0, 0] = number
        state.names[0].append("y")
        state.save()
        places.append(id(state._kept.value["weights"]["a"][0]))
        state.weights["a"][0][:] = 99
        state.columns[:] = 99
        state.names[0].clear()
        state.restore()
        assert (state.weights["a"][0] == number).all() and state.columns[0, 0] == number and state.columns[1, 1] == 6
        assert state.names.tolist() == [["x"] + ["y"] * number, None]
    assert len(set(places)) == 2


def test_a_container_that_holds_itself_is_copied() -> None:
    value: dict[str, Any] = {"step": 3, "parts": [1, 2]}
    value["self"] = value["parts"].append(value) or value
    copied = Snapshot(value).value
    assert copied is not value and copied["self"] is copied and copied["parts"][2] is copied and copied["step"] == 3
