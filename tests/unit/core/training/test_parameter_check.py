"""Whether parameters are equal on all ranks: digests, the comparison, which steps are compared, and the error."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest
from fakes.ranks import run_ranks

from horovod._core.errors import MismatchError
from horovod._core.life.process_sets import global_process_set
from horovod._core.training.ordinals import Ordinals
from horovod._core.training.parameter_check import check, compare, digests
from horovod.numpy.adapter import adapter


def of(**values: Any) -> dict[str, bytes]:
    return digests(adapter, values.items())


def test_a_digest_tells_bits_shape_and_type() -> None:
    base = of(w=np.arange(6, dtype=np.float32))
    assert of(w=np.arange(12, dtype=np.float32)[::2] / 2) == base  # also of what is not contiguous
    for other in (
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.arange(6, dtype=np.int32),
        np.array([0, 1, 2, 3, 4, np.nextafter(np.float32(5), np.float32(6))], np.float32),
        np.array([-0.0, 1, 2, 3, 4, 5], np.float32),
    ):
        assert of(w=other) != base
    assert of(w=np.zeros(0, np.float32)) != of(w=np.zeros((0, 3), np.float32))


def test_equal_parameters_are_no_story() -> None:
    assert compare({0: {"a": b"1"}, 1: {"a": b"1"}}) == ""
    assert compare({0: {}, 1: {}}) == ""


def test_who_differs_is_named() -> None:
    tables = {rank: {"a": b"1", "b": b"2"} for rank in range(4)}
    tables[2]["b"] = tables[3]["b"] = b"3"
    assert compare(tables) == "1 of 2 parameters differ between the ranks: 'b' of ranks 2, 3 differs from rank 0's."
    del tables[1]["a"]
    assert compare(tables) == (
        "all 2 parameters differ between the ranks: 'a' is not there on rank 1; 'b' of ranks 2, 3 differs from rank "
        "0's."
    )


def test_a_long_story_is_cut() -> None:
    text = compare({3: {f"p{i}": b"1" for i in range(10)}, 5: {f"p{i}": b"2" for i in range(10)}})
    assert text.startswith("all 10 parameters differ between the ranks: 'p0' of rank 5 differs from rank 3's; ")
    assert text.endswith("; and 2 more.")


def test_numbers_do_not_hang_on_what_has_gone() -> None:
    class Optimizer:
        pass

    def work(rank: int) -> list[int]:
        ordinals = Ordinals(weakref.WeakKeyDictionary())
        first, second = Optimizer(), Optimizer()
        found = [ordinals.of(first), ordinals.of(second), ordinals.of(first)]
        del first
        return [*found, ordinals.of(Optimizer()), ordinals.of(second)]

    assert run_ranks(1, work) == [[0, 1, 0, 2, 1]]


def test_numbers_begin_anew_with_a_session() -> None:
    by_session, throughout = Ordinals({}), Ordinals({}, by_session=False)
    found = [run_ranks(1, lambda rank, key=key: (by_session.of(key), throughout.of(key))) for key in "ab"]
    assert found == [[(0, 0)], [(0, 1)]]


def test_all_ranks_raise_or_none() -> None:
    def work(rank: int) -> str:
        same = np.ones(3, np.float32)
        check(adapter, lambda: [("same", same)], "one", 1, global_process_set)
        with pytest.raises(MismatchError) as caught:
            check(adapter, lambda: [("same", same), ("w", same * rank)], "two", 4, global_process_set)
        return str(caught.value)

    for text in run_ranks(3, work):
        assert text.startswith(
            "After step 4 of an optimizer 1 of 2 parameters differ between the ranks: 'w' of ranks 1, 2 differs from "
            "rank 0's. Broadcast the parameters before the first step"
        )
