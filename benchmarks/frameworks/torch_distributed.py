"""The backend of torch.distributed beside gloo, in turns in one job: collectives, messages between two ranks, and
whole steps of DistributedDataParallel and FSDP2.

    horovodrun -np 2 python benchmarks/frameworks/torch_distributed.py [PATTERN]

Prints a line per row whose name the regular expression finds: the median of the medians of five rounds, and gloo's time
as a multiple of ours.
"""

from __future__ import annotations

import re
import statistics
import sys
import time
from pathlib import Path
from typing import Any, Callable

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import horovod.torch.distributed

sys.path.insert(0, str(Path(__file__).parents[1]))
from ranks import resnet50

_SIZES = (4, 1 << 10, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20)
_ROUNDS = 5
_PATTERN = sys.argv[1] if len(sys.argv) > 1 else ""

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
    if not re.search(_PATTERN, name):
        return
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
    whole, other = torch.zeros(part.numel() * ranks), torch.zeros(part.numel() * ranks)
    rank, partner = dist.get_rank(), dist.get_rank() ^ 1

    def there_and_back(group: Any) -> None:
        if rank < partner:
            dist.send(tensor, partner, group)
        dist.recv(tensor, partner, group)
        if rank > partner:
            dist.send(tensor, partner, group)

    return {
        "all_reduce": lambda group: dist.all_reduce(tensor, group=group),
        "all_gather_single": lambda group: dist.all_gather_single(whole, part, group=group),
        "reduce_scatter_single": lambda group: dist.reduce_scatter_single(part, whole, group=group),
        "broadcast": lambda group: dist.broadcast(tensor, 0, group=group),
        "all_to_all_single": lambda group: dist.all_to_all_single(other, whole, group=group),
        "send and recv, there and back,": there_and_back,
    }


class Gradients(torch.nn.Module):
    """The parameters of ResNet-50, with gradients that cost no computation."""

    def __init__(self) -> None:
        super().__init__()
        self.tensors = torch.nn.ParameterList(torch.zeros(size) for size in resnet50.parameter_sizes())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The sum of all parameters' first elements."""
        return torch.stack([tensor[0] for tensor in self.tensors]).sum() + x[0, 0]


def layers(count: int, width: int) -> torch.nn.Module:
    """Linear layers of one width."""
    blocks = [block for _ in range(count) for block in (torch.nn.Linear(width, width), torch.nn.ReLU())]
    return torch.nn.Sequential(*blocks)


def by_ddp(model: torch.nn.Module, group: Any) -> Any:
    """Each rank has the whole model."""
    return DistributedDataParallel(model, process_group=group)


def by_fsdp2(model: torch.nn.Module, group: Any) -> Any:
    """Each rank has a part of each layer."""
    mesh = DeviceMesh.from_group(group, "cpu")
    for layer in model.children():
        if list(layer.parameters()):
            fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def step_of(make: Callable[[], torch.nn.Module], wrap: Callable[..., Any], width: int) -> Call:
    """A training step of a model, which each group has once.

    Args:
        wrap: what trains the model over a group.
        width: of the inputs.
    """
    trainings: dict[Any, Any] = {}
    inputs = torch.randn(16, width)

    def step(group: Any) -> None:
        if group not in trainings:
            model = wrap(make(), group)
            trainings[group] = model, torch.optim.SGD(model.parameters(), lr=0.01)
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
    for way, wrap in (("DDP", by_ddp), ("FSDP2", by_fsdp2)):
        row(f"{way} step of 10 layers, 64 wide", step_of(lambda: layers(10, 64), wrap, 64), groups, 60)
        row(f"{way} step of 6 layers, 1024 wide", step_of(lambda: layers(6, 1024), wrap, 1024), groups, 8)
    row("DDP step of ResNet-50's gradients", step_of(Gradients, by_ddp, 1), groups, 4)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
