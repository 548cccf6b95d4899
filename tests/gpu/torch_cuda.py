"""PyTorch's CUDA tensors on one rank or more: every collective against the same on the CPU, in place and not, in 16
bits, in groups, on a side stream, and a step of the optimizer.

    PYTHONPATH=python:tests python -m horovod.runner -np 2 python tests/gpu/torch_cuda.py

Ranks may share a GPU. Ends with 0 and a line if all is right; started by tools/test_gpu.py.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from jobs import ways

import horovod.torch as hvd

ROWS = 7


def collectives() -> None:
    """Each result on the GPU is the one on the CPU."""
    rank, size = hvd.rank(), hvd.size()
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8):
        made = torch.arange(ROWS * size * 3).reshape(ROWS * size, 3).remainder(5).add(rank).to(dtype)
        there = made.cuda()
        name = str(dtype)
        same(hvd.allreduce(there, op=hvd.Sum, name=f"sum.{name}"), hvd.allreduce(made, op=hvd.Sum, name=f"cpu.{name}"))
        same(hvd.allgather(there[rank:], name=f"gather.{name}"), hvd.allgather(made[rank:], name=f"cpu.gather.{name}"))
        same(hvd.broadcast(there, 0, name=f"from.{name}"), hvd.broadcast(made, 0, name=f"cpu.from.{name}"))
        same(hvd.alltoall(there, name=f"each.{name}"), hvd.alltoall(made, name=f"cpu.each.{name}"))
        scattered = hvd.reducescatter(there, op=hvd.Sum, name=f"scatter.{name}")
        same(scattered, hvd.reducescatter(made, op=hvd.Sum, name=f"cpu.scatter.{name}"))
    for op in (hvd.Average, hvd.Min, hvd.Max, hvd.Product):
        made = torch.linspace(1, 2, 101) + rank
        same(hvd.allreduce(made.cuda(), op=op, name=f"op.{op}"), hvd.allreduce(made, op=op, name=f"cpu.op.{op}"))


def streams() -> None:
    """What a stream makes late is reduced, and the stream that waits sees it."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)
        late = torch.full((1 << 20,), float(hvd.rank() + 1), device="cuda")
        handles = [hvd.allreduce_async_(late, op=hvd.Sum, name="late")]
        handles += [hvd.allreduce_async(torch.ones(n, device="cuda"), op=hvd.Sum, name=f"n.{n}") for n in range(1, 60)]
    first, *others = [hvd.synchronize(handle) for handle in handles]
    same(first[:3], torch.full((3,), hvd.size() * (hvd.size() + 1) / 2))
    for n, result in enumerate(others, 1):
        same(result, torch.full((n,), float(hvd.size())))


def training() -> None:
    """Parameters after some steps are those of the CPU."""
    torch.manual_seed(3)
    models = [torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    for place, model in zip(("cpu", "cuda"), models):
        model.to(place)
        plain = torch.optim.SGD(model.parameters(), lr=0.05)
        named = [(f"{place}.{name}", parameter) for name, parameter in model.named_parameters()]
        optimizer = hvd.DistributedOptimizer(plain, named_parameters=named)
        generator = torch.Generator().manual_seed(hvd.rank())
        for _ in range(5):
            optimizer.zero_grad()
            model(torch.randn(4, 8, generator=generator).to(place)).pow(2).mean().backward()
            optimizer.step()
    for here, there in zip(models[0].parameters(), models[1].parameters()):
        same(there, here.detach(), tolerance=1e-5)


def same(got: torch.Tensor, expected: torch.Tensor, tolerance: float = 1e-3) -> None:
    """Raises AssertionError unless the CUDA tensor holds these values."""
    assert got.is_cuda, got.device
    torch.testing.assert_close(got.detach().cpu(), expected, rtol=tolerance, atol=tolerance)


def main() -> int:
    """0: all is right."""
    hvd.init()
    torch.cuda.set_device(hvd.local_rank() % torch.cuda.device_count())
    parts: tuple[Any, ...] = (collectives, streams, training)
    for part in parts:
        part()
    ways.require_asked()
    print(f"rank {hvd.rank()} of {hvd.size()}: {len(parts)} parts are right")
    hvd.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
