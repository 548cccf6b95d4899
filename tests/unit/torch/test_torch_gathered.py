"""Which gradients are gathered, and until when."""

from __future__ import annotations

import pytest
import torch

from horovod.torch.gradients.gathered import GatheredGradients, is_small


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
