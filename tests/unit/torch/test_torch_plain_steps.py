"""Which steps of PyTorch's optimizers are counted, and that nothing is left behind when they have been."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.optim import optimizer as torch_optimizer

from horovod._core.life.ending.unreduced import PlainTraining
from horovod.torch.optimizers import plain_steps


class Counted(PlainTraining):
    def __init__(self) -> None:
        super().__init__("PyTorch's", "")
        self.kinds: list[str] = []

    def wants_steps(self) -> bool:
        return True

    def count(self, kind: str) -> bool:
        self.kinds.append(kind)
        return len(self.kinds) < 3 and not self._is_excused


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counted]:
    made = Counted()
    monkeypatch.setattr(plain_steps, "_training", made)
    begin: Any = plain_steps._begin
    begin(None)
    begin(None)
    yield made
    if plain_steps._hook is not None:
        plain_steps._hook.remove()
        plain_steps._hook = None


def hooks() -> int:
    return len(torch_optimizer._global_optimizer_post_hooks)


def sgd() -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)


def test_the_hook_is_gone_after_the_last_step_that_counts(counted: Counted) -> None:
    assert hooks() == 1
    optimizer = sgd()
    for _ in range(5):
        optimizer.step()
    assert counted.kinds == ["SGD"] * 3
    assert hooks() == 0 and plain_steps._hook is None


def test_a_distributed_optimizer_is_an_excuse(counted: Counted) -> None:
    optimizer: Any = sgd()
    optimizer._hvd_named_parameters = list
    optimizer.step()
    assert counted._is_excused and hooks() == 0


def test_a_compiled_step_steps(counted: Counted) -> None:
    optimizer = sgd()
    (parameter,) = optimizer.param_groups[0]["params"]
    parameter.grad = torch.ones(1)
    step = torch.compile(optimizer.step, backend="eager")
    for _ in range(6):
        step()
    assert parameter.item() == pytest.approx(1 - 6 * 0.1)
