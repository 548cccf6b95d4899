"""The arguments `groups` and `num_groups`, and the groups that come of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from horovod._core.errors import InvalidArgumentError
from horovod._core.training.groups import assign_groups, chosen_groups

A, B = np.zeros(2), np.zeros(3)


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        (None, []),
        (0, []),
        (1, [("a", "b", "c", "d", "e")]),
        (2, [("a", "b", "c"), ("d", "e")]),
        (9, [("a",), ("b",), ("c",), ("d",), ("e",)]),
        ([["e", "a"], []], [("e", "a")]),
    ],
)
def test_assign_groups(groups: Any, expected: Any) -> None:
    assert assign_groups(list("abcde"), groups) == expected


def test_a_key_is_in_one_group() -> None:
    with pytest.raises(InvalidArgumentError, match="more than one group"):
        assign_groups(list("abcde"), [["a"], ["a"]])


@pytest.mark.parametrize("groups", [None, 0, 3, [], [[]]])
def test_chosen_groups(groups: Any) -> None:
    assert chosen_groups(groups) == groups


def test_an_integer_of_numpy() -> None:
    assert type(chosen_groups(np.int64(2))) is int and chosen_groups(np.int64(2)) == 2


def test_lists_of_any_kind() -> None:
    chosen = chosen_groups(((A,), [B]))
    assert isinstance(chosen, list) and [[id(entry) for entry in group] for group in chosen] == [[id(A)], [id(B)]]


@pytest.mark.parametrize("groups", [-1, 2.5, True, "abc", [1], [A, B], A, ["ab"], [["kernel"]], [[A], [None]]])
def test_what_is_no_grouping(groups: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="groups must"):
        chosen_groups(groups)


def test_num_groups_is_deprecated() -> None:
    with pytest.warns(DeprecationWarning, match="use groups"):
        assert chosen_groups(None, 2) == 2
    with pytest.warns(DeprecationWarning):
        assert chosen_groups([[A]], 2) == [[A]]
