"""A training step of ResNet-50 today: two ranks on one GPU with `DistributedOptimizer`, beside the same step without.

Run by `run_all`; also the program of the ranks (see `job`). The two ranks share the GPU in turns, so the step itself is
slow; what counts is the ratio, and how often the host waits for the device within a step.
"""

from __future__ import annotations

import collections
import sys
import time
from pathlib import Path
from typing import Any, Callable

import job
from table import Table, middle, number, spread

_STEPS, _ROUNDS, _BATCH, _PIXELS = 3, 9, 16, 128


def parts() -> list[Callable[[], Table]]:
    """One table."""
    return [_two_ranks]


def _two_ranks() -> Table:
    made = Table(
        f"ResNet-50, batch {_BATCH} of {_PIXELS} x {_PIXELS} per rank, float32, two ranks on one GPU",
        ("what", "result"),
    )
    rows, made.note = job.rows_of(__file__, 150)
    made.rows = [tuple(row) for row in rows]
    return made


def _rank() -> None:
    import torch

    import horovod.torch as hvd

    sys.path.append(str(Path(__file__).resolve().parent.parent))
    from ranks import resnet50

    hvd.init()
    told: Callable[..., None] = job.tell if hvd.rank() == 0 else lambda *_: None
    torch.manual_seed(hvd.rank())
    models = [resnet50.model().cuda() for _ in range(2)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.01) for model in models]
    hvd.broadcast_parameters(models[1].state_dict(), 0)
    optimizers[1] = hvd.DistributedOptimizer(optimizers[1], named_parameters=models[1].named_parameters())
    batch = torch.randn(_BATCH, 3, _PIXELS, _PIXELS, device="cuda")
    target = torch.randint(0, resnet50.CLASSES, (_BATCH,), device="cuda")

    def step(which: int) -> None:
        optimizers[which].zero_grad()
        torch.nn.functional.cross_entropy(models[which](batch), target).backward()
        optimizers[which].step()

    taken: dict[int, list[float]] = {0: [], 1: []}
    for turn in range(_ROUNDS + 1):
        for which, times in taken.items():
            hvd.barrier()
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(_STEPS):
                step(which)
            torch.cuda.synchronize()
            if turn:
                times.append((time.perf_counter() - begin) / _STEPS)
    told("a step without, ms", spread(taken[0], 1e3))
    told("a step with DistributedOptimizer, ms", spread(taken[1], 1e3))
    told("ratio", number(middle(taken[1]) / middle(taken[0])))
    for which, name in enumerate(("without", "with DistributedOptimizer")):
        told(f"calls of CUDA in a step {name}", _calls(torch, lambda which=which: step(which)))
    sums = [hvd.allgather(p.detach().double().sum().reshape(1)) for p in models[1].parameters()]
    told("parameters equal on both ranks", all(bool(s[0] == s[1]) for s in sums))


def _calls(torch: Any, step: Callable[[], None]) -> str:
    kinds = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=kinds) as profile:
        step()
        torch.cuda.synchronize()
    seen = collections.Counter(event.name for event in profile.events() if event.name.startswith(("cuda", "cuMem")))
    wanted = {
        name: count for name, count in seen.items() if "Synchronize" in name or "Memcpy" in name or "Alloc" in name
    }
    return f"{wanted} (cudaDeviceSynchronize: the profiler's and the measurement's)"


if __name__ == "__main__":
    _rank()
