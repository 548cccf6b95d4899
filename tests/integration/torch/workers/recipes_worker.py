"""Recipes between `backward()` and `step()`: ranks that are late in turn end where one process ends with the whole
batch, and equal bit for bit."""

import os
import time
import warnings
from typing import Any

import torch
from cases import run_cases
from recipes import RECIPES, Net, Step

import horovod.torch as hvd

FULL = os.environ.get("HVD_TEST_MATRIX") == "full"
# A rank is late in every so many steps.
STEPS, RUNS, PAUSE_S, EVERY = (20, 20, 0.2, 5) if FULL else (4, 1, 0.02, 1)
TOLERANCE = {torch.float32: {"rtol": 1e-5, "atol": 1e-6}, torch.float64: {"rtol": 1e-12, "atol": 1e-12}}


def batches(dtype: torch.dtype, seed: int, apart: bool) -> list[list[tuple[torch.Tensor, ...]]]:
    """By step, two whole batches. `apart`: a rank's samples all use the same head, rank 0's the first one."""
    generator = torch.Generator().manual_seed(seed)
    n = 4 * hvd.size()

    def whole() -> tuple[torch.Tensor, ...]:
        x = torch.randn(n, 12, generator=generator).to(dtype)
        head = (torch.arange(n) % hvd.size() > 0) if apart else torch.arange(n) // hvd.size() % 2 > 0
        return x, head.long(), torch.randn(n, 2, generator=generator).to(dtype)

    return [[whole(), whole()] for _ in range(STEPS)]


def part(micro: list[tuple[torch.Tensor, ...]]) -> list[tuple[torch.Tensor, ...]]:
    return [tuple(t[hvd.rank() :: hvd.size()] for t in batch) for batch in micro]


def trained(recipe: Any, data: Any, dtype: torch.dtype, kind: str, ours: bool, **options: Any) -> torch.Tensor:
    net = Net(dtype)
    optimizer: Any = {
        "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, foreach=False),
        "sgd fused": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
        "sgd foreach": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, foreach=True),
    }[kind](net.parameters())
    if ours:
        optimizer = hvd.DistributedOptimizer(optimizer, net.named_parameters(), **options)
    step = Step(net, optimizer, torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=3), [], lambda: None, {})
    step.kept["looks"] = not ours or hvd.rank() == 0
    for number, micro in enumerate(data):
        step.micro = part(micro) if ours else micro
        if ours:
            # Late before the pass: the others' gradients are under way. Late after it: this one's are.
            late = number // EVERY % (2 * hvd.size()) if number % EVERY == EVERY - 1 else None
            if late == hvd.rank():
                time.sleep(PAUSE_S)
            is_late = late == hvd.size() + hvd.rank()
            step.pause = (lambda: time.sleep(PAUSE_S)) if is_late else lambda: None
        recipe(step)
    return torch.cat([p.detach().flatten() for p in net.parameters()])


def check(name: str, apart: bool, dtype: torch.dtype, kind: str = "sgd", **options: Any) -> None:
    for run in range(RUNS):
        data = batches(dtype, run, apart)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Using backward.. with create_graph")  # PyTorch's, of that recipe
            warnings.filterwarnings("ignore", ".*without optimizer.skip_synchronize")
            expected = trained(RECIPES[name], data, dtype, kind, False)
            result = trained(RECIPES[name], data, dtype, kind, True, **options)
        assert torch.allclose(result, expected, **TOLERANCE[dtype]), (name, apart, (result - expected).abs().max())
        ranks = hvd.allgather(result[None])
        assert all(torch.equal(ranks[0], row) for row in ranks), (name, apart)


# What a program holds elsewhere than in `parameter.grad` must have been computed by all ranks.
_NOT_APART = ("gradients_kept_in_a_list", "views_of_one_buffer")


def case_recipes_in_float32():
    for name in RECIPES:
        check(name, False, torch.float32)


def case_recipes_in_float64():
    for name in RECIPES if FULL else ("amp_with_clipping", "accumulation", "clip_norm"):
        check(name, False, torch.float64)


def case_recipes_where_ranks_use_different_parameters():
    for name in RECIPES:
        if name not in _NOT_APART:
            check(name, True, torch.float32)


def case_recipes_in_groups():
    for name in RECIPES if FULL else ("amp_with_clipping", "accumulation", "clip_norm"):
        for apart in (False, True):
            if not (apart and name in _NOT_APART):
                check(name, apart, torch.float32, groups=2)


def case_recipes_with_other_kinds_of_steps():
    for kind in ("sgd fused", "sgd foreach"):
        for name in ("amp", "amp_with_clipping", "clip_norm", "accumulation", "discarded_pass"):
            check(name, False, torch.float32, kind)


def case_accumulation_that_is_announced():
    for name in ("accumulation", "amp_with_accumulation", "amp_with_two_losses"):
        for apart in (False, True):
            check(name, apart, torch.float32, backward_passes_per_step=2)


if __name__ == "__main__":
    run_cases(globals())
