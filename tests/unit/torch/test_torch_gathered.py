"""Which gradients are gathered, and until when."""

from __future__ import annotations

import types
from typing import Any

import pytest
import torch

from horovod.torch.gradients.gathered import GatheredGradients, gathered_bytes, send_again, submit_gathered


@pytest.mark.parametrize(
    "parameter, expected",
    [
        (torch.zeros(100), 400),
        (torch.zeros(100, dtype=torch.float64), 800),
        (torch.zeros(3, device="meta"), 0),
        (torch.zeros(3).to_sparse(), 0),
    ],
)
def test_dense_ones_in_main_memory(parameter: torch.Tensor, expected: int) -> None:
    assert gathered_bytes(parameter) == expected


@pytest.mark.parametrize("overlaps, limit", [(True, 64 << 10), (False, 1 << 62)])
def test_large_ones_too_where_a_reduction_only_interrupts_the_pass(overlaps: bool, limit: int) -> None:
    gathered = GatheredGradients(overlaps)
    assert gathered.limit == limit
    assert [gathered.add(number, 1 << 30) for number in range(2)] == [overlaps, overlaps]
    gathered.set_overlaps(not overlaps)
    assert gathered.limit != limit


def test_more_is_waited_for_longer() -> None:
    gathered = GatheredGradients(True)
    assert gathered.patience_s == pytest.approx(1e-3)
    gathered.add(0, 40 << 20)
    assert gathered.patience_s == pytest.approx(11.5e-3, rel=0.01)
    gathered.add(1, 1 << 30)
    assert gathered.patience_s == pytest.approx(21e-3)


def test_until_they_are_more_than_a_megabyte() -> None:
    gathered = GatheredGradients(True)
    assert [gathered.add(number, 512 << 10) for number in range(3)] == [False, False, True]
    assert gathered.take() == [0, 1, 2] and gathered.take() == []
    assert not gathered.add(3, 512 << 10) and gathered.take() == [3]


class Reducer:
    """Submits the first `accepted` of what it gets; all of them are reduced in a moment, or none."""

    def __init__(self, accepted: int = 99, lands: bool = True) -> None:
        self.accepted, self.lands = accepted, lands
        self.calls: list[tuple[list[int], float]] = []

    def ready_again(self, keys: list[int], tensors: list[Any], started: list[Any], wait_s: float) -> bool:
        self.calls.append((keys, wait_s))
        started.extend(tensors[: self.accepted])
        return wait_s > 0 and self.lands and len(started) == len(keys)


def access_of(reducer: Reducer, parameters: list[torch.Tensor]) -> Any:
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    made = types.SimpleNamespace(
        parameters=parameters,
        reducer_of=dict.fromkeys(range(len(parameters)), reducer),
        under_way=types.SimpleNamespace(sent={}),
        gathered=GatheredGradients(True),
        plainly=[],
    )
    made.send_again = lambda numbers, wait_s=0.0: send_again(made, numbers, wait_s)
    made.ready = made.plainly.append
    return made


@pytest.mark.parametrize("wait_s, lands, is_under_way", [(1e-3, True, False), (1e-3, False, True), (0.0, True, True)])
def test_what_is_reduced_in_a_moment_is_not_under_way(wait_s: float, lands: bool, is_under_way: bool) -> None:
    access = access_of(Reducer(lands=lands), [torch.zeros(3), torch.zeros(4)])
    versions = [parameter.grad._version for parameter in access.parameters]
    assert send_again(access, [1, 0], wait_s) == 2
    assert set(access.under_way.sent) == ({0, 1} if is_under_way else set())
    changes = [p.grad._version - before for p, before in zip(access.parameters, versions)]
    assert changes == [0, 0] if is_under_way else changes == [1, 1]


def test_nothing_is_waited_for_before_all_are_submitted() -> None:
    reducer = Reducer()
    access = access_of(reducer, [torch.zeros(3), torch.zeros(3, 4).t(), torch.zeros(5)])
    for number in range(3):
        access.gathered.add(number, 12)
    submit_gathered(access, waits=True)
    assert reducer.calls == [([0], 0.0), ([], 0.0), ([2], 0.0)]
    assert access.plainly == [1] and set(access.under_way.sent) == {0, 2}
