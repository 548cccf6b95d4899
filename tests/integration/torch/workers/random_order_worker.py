"""200 steps over 160 parameters whose hooks fire in an order of their own, on every rank and in
every step: no deadlock, equal parameters."""

from __future__ import annotations

import numpy as np
import torch

import horovod.torch as hvd

TENSORS, STEPS = 160, 200


def main() -> None:
    hvd.init()
    torch.set_num_threads(1)
    parameters = [torch.nn.Parameter(torch.zeros(i * 7 + 1)) for i in range(TENSORS)]
    named = [(f"p{i}", parameter) for i, parameter in enumerate(parameters)]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=1.0), named)
    rng = np.random.default_rng(hvd.rank() + 1)
    mean = (hvd.size() - 1) / 2
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = torch.zeros(())
        for i in rng.permutation(TENSORS):
            loss = loss + parameters[i].sum() * float(i + hvd.rank())
        loss.backward()
        optimizer.step()
        for i, parameter in enumerate(parameters):
            if not torch.all(parameter == -(i + mean) * (step + 1)):
                raise AssertionError(f"step {step}, parameter {i}: {parameter[:3]}")
    print(f"passed {STEPS} steps of {TENSORS} tensors on {hvd.size()} ranks", flush=True)


if __name__ == "__main__":
    main()
