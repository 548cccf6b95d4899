"""The backend of torch.distributed beside gloo, in turns in one job: collectives, and whole steps of
DistributedDataParallel.

    horovodrun -np 2 python benchmarks/frameworks/torch_distributed.py

Prints a line per row: the median of the medians of five rounds, and gloo's time as a multiple of ours.
"""

from __future__ import annotations

import statistics
import time
from typing import Any, Callable

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import horovod.torch.distributed

_SIZES = (4, 1 << 10, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20)
_ROUNDS = 5

Call = Callable[[Any], object]


def median_us(call: Call, group: Any, count: int) -> float:
    """Of some calls in a row."""
    found = []
    for _ in range(count):
        begun = time.perf_counter()
        call(group)
        found.append(time.perf_counter() - begun)
    return statistics.median(found) * 1e6


def row(name: str, call: Call, groups: dict[str, Any], count: int) -> None:
    """Measures the groups in turns; rank 0 prints."""
    medians: dict[str, list[float]] = {which: [] for which in groups}
    for _ in range(_ROUNDS):
        for which, group in groups.items():
            dist.barrier()
            median_us(call, group, max(2, count // 10))
            medians[which].append(median_us(call, group, count))
    ours, gloo = (statistics.median(medians[which]) for which in groups)
    if dist.get_rank() == 0:
        print(f"{name:32s} ours {ours:9.1f} us   gloo {gloo:9.1f} us   gloo / ours {gloo / ours:.2f}", flush=True)


def collectives(size: int) -> dict[str, Call]:
    """Calls with tensors of this many bytes; of those that gather or scatter, the larger one."""
    ranks = dist.get_world_size()
    tensor = torch.zeros(size // 4)
    part = torch.zeros(max(1, size // 4 // ranks))
    whole = torch.zeros(part.numel() * ranks)
    return {
        "all_reduce": lambda group: dist.all_reduce(tensor, group=group),
        "all_gather_single": lambda group: dist.all_gather_single(whole, part, group=group),
        "reduce_scatter_single": lambda group: dist.reduce_scatter_single(part, whole, group=group),
        "broadcast": lambda group: dist.broadcast(tensor, 0, group=group),
    }


def step_of(layers: int, width: int, groups: dict[str, Any]) -> Call:
    """A training step of a model of each group."""
    trainings = {}
    for group in groups.values():
        blocks = [block for _ in range(layers) for block in (torch.nn.Linear(width, width), torch.nn.ReLU())]
        model = DistributedDataParallel(torch.nn.Sequential(*blocks), process_group=group)
        trainings[group] = model, torch.optim.SGD(model.parameters(), lr=0.01)
    inputs = torch.randn(16, width)

    def step(group: Any) -> None:
        model, optimizer = trainings[group]
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()

    return step


def main() -> None:
    """All rows."""
    torch.set_num_threads(1)
    horovod.torch.distributed.init_process_group()
    groups = {"ours": dist.group.WORLD, "gloo": dist.new_group(backend="gloo")}
    for size in _SIZES:
        for name, call in collectives(size).items():
            row(f"{name} {size} B", call, groups, 200 if size <= 64 << 10 else 40 if size <= 1 << 20 else 6)
    row("DDP step of 10 layers, 64 wide", step_of(10, 64, groups), groups, 60)
    row("DDP step of 6 layers, 1024 wide", step_of(6, 1024, groups), groups, 8)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
