"""Which gradients are gathered, and until when."""

from __future__ import annotations

import types
from typing import Any

import pytest
import torch

from horovod.torch.gradients.gathered import GatheredGradients, is_small, send_again, submit_gathered


@pytest.mark.parametrize(
    "parameter, expected",
    [
        (torch.zeros(100), True),
        (torch.zeros((16 << 10) - 1), True),
        (torch.zeros(16 << 10), False),
        (torch.zeros(8 << 10, dtype=torch.float64), False),
        (torch.zeros(3, device="meta"), False),
        (torch.zeros(3).to_sparse(), False),
    ],
)
def test_small_ones_in_main_memory(parameter: torch.Tensor, expected: bool) -> None:
    assert is_small(parameter) is expected


def test_until_they_are_more_than_a_megabyte() -> None:
    gathered = GatheredGradients()
    assert [gathered.add(number, 512 << 10) for number in range(3)] == [False, False, True]
    assert gathered.take() == [0, 1, 2] and gathered.take() == []
    assert not gathered.add(3, 512 << 10) and gathered.take() == [3]


class Reducer:
    """Submits the first `accepted` of what it gets; all of them are reduced in a moment, or none."""

    def __init__(self, accepted: int = 99, lands: bool = True) -> None:
        self.accepted, self.lands = accepted, lands
        self.calls: list[tuple[list[int], bool]] = []

    def ready_again(self, keys: list[int], tensors: list[Any], started: list[Any], waits: bool) -> bool:
        self.calls.append((keys, waits))
        started.extend(tensors[: self.accepted])
        return waits and self.lands and len(started) == len(keys)


def access_of(reducer: Reducer, parameters: list[torch.Tensor]) -> Any:
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    made = types.SimpleNamespace(
        parameters=parameters,
        reducer_of=dict.fromkeys(range(len(parameters)), reducer),
        under_way=types.SimpleNamespace(sent={}),
        gathered=GatheredGradients(),
        plainly=[],
    )
    made.send_again = lambda numbers, waits=False: send_again(made, numbers, waits)
    made.ready = made.plainly.append
    return made


@pytest.mark.parametrize("waits, lands, is_under_way", [(True, True, False), (True, False, True), (False, True, True)])
def test_what_is_reduced_in_a_moment_is_not_under_way(waits: bool, lands: bool, is_under_way: bool) -> None:
    access = access_of(Reducer(lands=lands), [torch.zeros(3), torch.zeros(4)])
    versions = [parameter.grad._version for parameter in access.parameters]
    assert send_again(access, [1, 0], waits) == 2
    assert set(access.under_way.sent) == ({0, 1} if is_under_way else set())
    changes = [p.grad._version - before for p, before in zip(access.parameters, versions)]
    assert changes == [0, 0] if is_under_way else changes == [1, 1]


def test_nothing_is_waited_for_before_all_are_submitted() -> None:
    reducer = Reducer()
    access = access_of(reducer, [torch.zeros(3), torch.zeros(3, 4).t(), torch.zeros(5)])
    for number in range(3):
        access.gathered.add(number, 12)
    submit_gathered(access, waits=True)
    assert reducer.calls == [([0], False), ([], False), ([2], False)]
    assert access.plainly == [1] and set(access.under_way.sent) == {0, 2}
