"""A training step of ResNet-50 today: two ranks on one GPU with `DistributedOptimizer`, beside the same step without.

Run by `run_all`; also the program of the ranks (see `job`). The two ranks share the GPU in turns, so the step itself is
slow; what counts is the ratio, and how often the host waits for the device within a step.
"""

from __future__ import annotations

import collections
import os
import sys
import time
from pathlib import Path
from typing import Any, Callable

import job
import other_gpu
import overlap
from table import Table, middle, number, spread

_BACKWARD = "backward of the probe"
_STEPS, _ROUNDS, _BATCH, _PIXELS = 3, 9, 16, 128


def parts() -> list[Callable[[], Table]]:
    """A table for each way."""
    return [lambda: _two_ranks("staged"), lambda: _two_ranks("nccl")]


def _two_ranks(way: str) -> Table:
    made = Table(
        f"ResNet-50, batch {_BATCH} of {_PIXELS} x {_PIXELS} per rank, float32, two ranks on one GPU, {way}",
        ("what", "result"),
    )
    rows, made.note = job.rows_of(__file__, 120, way)
    made.rows = [tuple(row) for row in rows]
    return made


def _rank() -> None:
    import torch

    import horovod.torch as hvd

    root = Path(__file__).resolve().parent.parent.parent
    sys.path += [str(root / "benchmarks"), str(root / "tests")]
    from jobs import ways
    from ranks import resnet50

    rank = int(os.environ["HOROVOD_RANK"])
    os.environ["NCCL_HOSTID"] = f"probe-{rank}"
    library = other_gpu.use_for_the_core(rank if sys.argv[1] == "nccl" else None)
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
        loss = torch.nn.functional.cross_entropy(models[which](batch), target)
        with torch.profiler.record_function(_BACKWARD):
            loss.backward()
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
        before = library.waits_of_the_core()
        calls, beside = _profiled(torch, lambda which=which: step(which))
        told(f"calls of CUDA in a step {name}", calls)
        told(f"overlap in a step {name}", beside)
        told(f"waits of the core for the device in a step {name}", library.waits_of_the_core() - before)
    sums = [hvd.allgather(p.detach().double().sum().reshape(1)) for p in models[1].parameters()]
    told("batches by each way", ways.batches())
    assert ways.batches()[sys.argv[1]] > 0, f"nothing went by {sys.argv[1]}: {ways.batches()}"
    told("parameters equal on both ranks", all(bool(s[0] == s[1]) for s in sums))


def _profiled(torch: Any, step: Callable[[], None]) -> tuple[str, str]:
    """What PyTorch and its libraries call in a step; how much of the reduction lies beside backward."""
    kinds = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=kinds) as profile:
        step()
        torch.cuda.synchronize()
    seen = collections.Counter(event.name for event in profile.events() if event.name.startswith(("cuda", "cuMem")))
    wanted = {
        name: count for name, count in seen.items() if "Synchronize" in name or "Memcpy" in name or "Alloc" in name
    }
    cuda = torch.autograd.DeviceType.CUDA
    marks = [event for event in profile.events() if event.name == _BACKWARD and event.device_type != cuda]
    begin = marks[0].time_range.start
    work = [
        overlap.Work(event.name, event.time_range.start, event.time_range.end)
        for event in profile.events()
        if event.device_type == cuda and event.name != _BACKWARD
    ]
    beside, whole = overlap.beside_backward(work, begin)
    counted = overlap.waits(seen.elements())
    return (
        f"{counted} host synchronisations, {wanted} (cudaDeviceSynchronize: the profiler's and the measurement's)",
        f"overlap: {number(beside / 1e3)} ms of {number(whole / 1e3)} ms of reduction lie inside backward",
    )


if __name__ == "__main__":
    _rank()
