"""`horovod.spark.run` beside an empty barrier job, and beside pyspark's TorchDistributor with gloo, in turns.

    on_spark.py [--rounds 5] [--steps 300] [--only start train]

Two executors of this machine, a JVM each (local-cluster[2,1,1024]), and two ranks. Needs pyspark, Java and PyTorch.
`start`: seconds of an empty barrier job of two tasks, of a `run` of nothing, and of the interpreters that a run cannot
do without, alone. `train`: steps a second of the same training, by `DistributedOptimizer` in ranks of `run`, and by
DistributedDataParallel over gloo in those of TorchDistributor. Medians.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any, Callable

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
RANKS = 2
_WIDTHS = (64, 512)
_AGENT, _RANK = "import horovod.runner.remote.agent", "import horovod.runner.run_task, cloudpickle"


def session() -> Any:
    """A session with two executors."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(f"local-cluster[{RANKS},1,1024]").appName("on_spark")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "512m",
    }.items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("OFF")
    return made


def steps_a_second(width: int, steps: int, wrapped: Callable[[Any, Any], tuple[Any, Any]]) -> float:
    """Of a perceptron of 10 layers, with one thread.

    Args:
        width: of a layer.
        steps: that are measured, after a tenth as many.
        wrapped: makes model and optimizer distributed.
    """
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(1)
    layers = [layer for _ in range(10) for layer in (torch.nn.Linear(width, width), torch.nn.ReLU())]
    plain = torch.nn.Sequential(*layers, torch.nn.Linear(width, 10))
    model, optimizer = wrapped(plain, torch.optim.SGD(plain.parameters(), lr=0.001))
    x, y = torch.randn(32, width), torch.randint(0, 10, (32,))

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    for _ in range(steps // 10):
        step()
    start_s = time.perf_counter()
    for _ in range(steps):
        step()
    return steps / (time.perf_counter() - start_s)


def by_horovod(widths: Sequence[int], steps: int) -> list[float]:
    """What a rank of `horovod.spark.run` does."""
    import horovod.torch as hvd

    hvd.init()

    def wrapped(model: Any, optimizer: Any) -> tuple[Any, Any]:
        return model, hvd.DistributedOptimizer(optimizer, model.named_parameters())

    return [steps_a_second(width, steps, wrapped) for width in widths]


def by_gloo(widths: Sequence[int], steps: int) -> list[float]:
    """What a process of TorchDistributor does."""
    import torch

    torch.distributed.init_process_group("gloo")

    def wrapped(model: Any, optimizer: Any) -> tuple[Any, Any]:
        return torch.nn.parallel.DistributedDataParallel(model), optimizer

    found = [steps_a_second(width, steps, wrapped) for width in widths]
    torch.distributed.destroy_process_group()
    return found


def start(context: Any, rounds: int) -> None:
    """Prints what a run of nothing costs."""
    import horovod.spark

    def empty() -> None:
        context.range(RANKS, numSlices=RANKS).barrier().mapPartitions(lambda rows: rows).collect()

    def interpreters() -> None:
        """The agent's, and then those of the ranks at once."""
        for at_once in ([_AGENT], [_RANK] * RANKS):
            for process in [subprocess.Popen([sys.executable, "-c", imports]) for imports in at_once]:
                process.wait(60)

    ways: dict[str, Callable[[], Any]] = {
        "empty barrier job": empty,
        "run of nothing": lambda: horovod.spark.run(lambda: None, num_proc=RANKS, verbose=0),
        "interpreters": interpreters,
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(rounds + 1):
        for name, work in ways.items():
            start_s = time.monotonic()
            work()
            if turn:  # the first one has Spark start its workers
                seconds[name].append(time.monotonic() - start_s)
    for name, each in seconds.items():
        print(f"{name}: {statistics.median(each):.2f} s ({min(each):.2f} to {max(each):.2f})", flush=True)
    own, empty_s, imports = (statistics.median(seconds[name]) for name in ("run of nothing", *list(ways)[::2]))
    print(f"own time, without the interpreters: {own - empty_s - imports:.2f} s", flush=True)


def train(rounds: int, steps: int) -> None:
    """Prints steps a second."""
    import torch
    from pyspark.ml.torch.distributor import TorchDistributor

    import horovod.spark

    distributor = TorchDistributor(num_processes=RANKS, local_mode=False, use_gpu=False)
    rates: dict[str, list[list[float]]] = {"horovod.spark.run": [], "TorchDistributor, gloo": []}
    for _ in range(rounds):
        rates["horovod.spark.run"].append(horovod.spark.run(by_horovod, (_WIDTHS, steps), num_proc=RANKS, verbose=0)[0])
        rates["TorchDistributor, gloo"].append(distributor.run(by_gloo, _WIDTHS, steps))
        print({name: [round(rate) for rate in each[-1]] for name, each in rates.items()}, flush=True)
    for number, width in enumerate(_WIDTHS):
        medians = {name: statistics.median(each[number] for each in found) for name, found in rates.items()}
        shown = ", ".join(f"{name} {rate:.0f} steps/s" for name, rate in medians.items())
        ours, theirs = medians.values()
        print(f"torch {torch.__version__}, 10 layers of {width}: {shown}; ratio {ours / theirs:.2f}", flush=True)


def main(words: Sequence[str]) -> int:
    """Runs what the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--only", nargs="+", choices=("start", "train"), default=("start", "train"))
    given = parser.parse_args(words)
    made = session()
    try:
        if "start" in given.only:
            start(made.sparkContext, given.rounds)
        if "train" in given.only:
            train(given.rounds, given.steps)
    finally:
        made.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
