"""A rank of `elastic_overhead`: trains when the controller says so, and waits at a socket meanwhile."""

from __future__ import annotations

import os
import socket
import time
from typing import Any

import torch

import horovod.torch as hvd

COMMITS = os.environ["BENCH_COMMITS"] == "1"
STEPS_PER_COMMIT = int(os.environ["BENCH_STEPS_PER_COMMIT"])
WIDTH, LAYERS, BATCH = 512, 6, 256


def main() -> None:
    hvd.init()
    model = torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    batch = torch.randn(BATCH, WIDTH)
    controller = socket.socket(socket.AF_UNIX)
    controller.connect(os.environ["BENCH_SOCKET"])
    words = controller.makefile("rw")

    def train(state: Any) -> None:
        print(os.environ["BENCH_NAME"], hvd.rank(), file=words, flush=True)
        for word in words:
            count = int(word)
            hvd.barrier()
            begun = time.perf_counter()
            for number in range(count):
                optimizer.zero_grad()
                model(batch).square().mean().backward()
                optimizer.step()
                if COMMITS and number % STEPS_PER_COMMIT == STEPS_PER_COMMIT - 1:
                    state.commit()
            hvd.barrier()
            print(time.perf_counter() - begun, file=words, flush=True)

    state = hvd.elastic.TorchState(model, optimizer, step=0)
    (hvd.elastic.run(train) if COMMITS else train)(state)


main()
