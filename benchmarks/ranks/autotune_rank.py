"""One rank of `benchmarks/autotune.py`: trains until the tuner has kept something, then measures start and kept in
turns.

    autotune_rank.py LAYERS WIDTH
"""

from __future__ import annotations

import statistics
import sys
import threading
import time

import torch
from jobs.report import report
from sklearn.datasets import load_digits

import horovod.torch as hvd
from horovod._core.life import parameters

_BLOCKS, _STEPS, _SETTLING = 8, 30, 5
_BATCH = 16


class Training:
    """A step of it, on this rank's share of the digits."""

    def __init__(self, layers: int, width: int) -> None:
        digits = load_digits()
        self._images = torch.tensor(digits.data[hvd.rank() :: hvd.size()], dtype=torch.float32) / 16
        self._labels = torch.tensor(digits.target[hvd.rank() :: hvd.size()])
        torch.manual_seed(0)
        inner = [part for _ in range(layers) for part in (torch.nn.Linear(width, width), torch.nn.ReLU())]
        self._model = torch.nn.Sequential(torch.nn.Linear(64, width), *inner, torch.nn.Linear(width, 10))
        self._optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(self._model.parameters(), lr=0.01), named_parameters=self._model.named_parameters()
        )
        hvd.broadcast_parameters(self._model.state_dict(), root_rank=0)
        self._at = 0

    def step(self) -> float:
        """Milliseconds of one."""
        begun = time.perf_counter()
        rows = torch.arange(self._at, self._at + _BATCH) % len(self._images)
        self._at += _BATCH
        self._optimizer.zero_grad()
        torch.nn.functional.cross_entropy(self._model(self._images[rows]), self._labels[rows]).backward()
        self._optimizer.step()
        return 1e3 * (time.perf_counter() - begun)


def main() -> None:
    """See the head of the file."""
    hvd.init()
    start = parameters.in_force()
    training = Training(int(sys.argv[1]), int(sys.argv[2]))
    tuning = True
    while tuning:
        for _ in range(20):
            training.step()
        tuning = any(thread.name == "horovod-autotune" for thread in threading.enumerate())
        tuning = hvd.broadcast_object(tuning, root_rank=0)
    kept = parameters.in_force()
    found: dict[str, list[float]] = {"start": [], "kept": []}
    for _ in range(_BLOCKS):
        for name, chosen in (("start", start), ("kept", kept)):
            if hvd.rank() == 0:
                parameters.change(chosen)
            times = [training.step() for _ in range(_SETTLING + _STEPS)]
            found[name].append(statistics.median(times[_SETTLING:]))
    if hvd.rank() == 0:
        report("measured", **found)
    hvd.shutdown()


if __name__ == "__main__":
    main()
