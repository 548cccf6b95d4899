"""What a commit costs the training thread, beside a plain deep copy of the same, for 100 MB of weights and momentum.

`python benchmarks/elastic_commit.py [--frameworks torch,tensorflow,keras-jax,numpy] [--megabytes 100] [--rounds 20]`.
One process each. Training steps follow one another; before each comes, in an order drawn anew every round, nothing, a
deep copy, or `state.commit()`. Shown are the milliseconds of the call (median), and by how much call and step were
longer than the round's step without any (median and its 95 % interval): a copy in the background takes some of the
step's processor and memory, and the step waits for it before it changes the weights.
"""

from __future__ import annotations

import argparse
import copy
import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, NamedTuple

from harness.differences import difference

ROOT = Path(__file__).resolve().parent.parent
BACKENDS = {"keras-jax": "jax", "keras-torch": "torch", "keras-tensorflow": "tensorflow"}
WIDTH = 1024
BATCH = 64
WARM = 3


class Case(NamedTuple):
    """A training of a framework.

    Args:
        state: what is committed.
        step: makes a training step, to its end.
        plain: a deep copy of all that the state keeps.
    """

    state: Any
    step: Callable[[], None]
    plain: Callable[[], Any]


def torch_case(megabytes: float) -> Case:
    import torch

    import horovod.torch as hvd

    hvd.init()
    model = torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH) for _ in range(layers(megabytes, copies=2))])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    batch = torch.randn(BATCH, WIDTH)

    def step() -> None:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()

    step()
    state = hvd.elastic.TorchState(model, optimizer, step=0)
    return Case(state, step, lambda: copy.deepcopy((model.state_dict(), optimizer.state_dict())))


def tensorflow_case(megabytes: float) -> Case:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    shape = (WIDTH, WIDTH)
    weights = [tf.Variable(tf.random.normal(shape, stddev=0.03)) for _ in range(layers(megabytes, copies=2))]
    momenta = [tf.Variable(tf.zeros(shape)) for _ in weights]
    batch = tf.random.normal((BATCH, WIDTH))

    @tf.function
    def step() -> None:
        with tf.GradientTape() as tape:
            value = batch
            for weight in weights:
                value = value @ weight
            loss = tf.reduce_mean(tf.square(value))
        for weight, momentum, gradient in zip(weights, momenta, tape.gradient(loss, weights)):
            momentum.assign(momentum * 0.9 + gradient)
            weight.assign_sub(1e-4 * momentum)

    state = hvd.elastic.TensorFlowState(weights + momenta, step=0)
    return Case(state, lambda: step() and None, lambda: [variable.numpy() for variable in state.variables])


def keras_case(megabytes: float) -> Case:
    import keras
    import numpy as np

    import horovod.keras as hvd

    hvd.init()
    model = keras.Sequential([keras.Input((WIDTH,))])
    for _ in range(layers(megabytes, copies=2)):
        model.add(keras.layers.Dense(WIDTH))
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(1e-4, momentum=0.9)), "mse")
    batch = np.random.default_rng(1).normal(size=(BATCH, WIDTH)).astype("float32")
    state = hvd.elastic.KerasState(model, step=0)
    everything = model.variables + model.optimizer.variables
    # JAX's conversion copies already, the others' does not.
    copied = keras.ops.convert_to_numpy
    if keras.backend.backend() != "jax":
        copied = lambda variable: np.array(keras.ops.convert_to_numpy(variable))  # noqa: E731
    step: Callable[[], None] = lambda: model.train_on_batch(batch, batch) and None  # noqa: E731
    return Case(state, step, lambda: [copied(variable) for variable in everything])


def numpy_case(megabytes: float) -> Case:
    import numpy as np

    import horovod.numpy as hvd

    hvd.init()
    weights = [np.ones((WIDTH, WIDTH), np.float32) for _ in range(layers(megabytes, copies=1))]
    state = hvd.elastic.ObjectState(weights=weights, step=0)
    batch = np.ones((BATCH, WIDTH), np.float32)

    def step() -> None:
        for weight in state.weights:
            weight += 1e-6 * (batch.T @ (batch @ weight))

    return Case(state, step, lambda: copy.deepcopy({"weights": state.weights}))


def layers(megabytes: float, copies: int) -> int:
    """As many square matrices as make so many megabytes when each stands so many times."""
    return max(1, round(megabytes * 1e6 / (copies * 4 * WIDTH * WIDTH)))


def measured(case: Case, rounds: int) -> dict[str, list[float]]:
    """Milliseconds by round: of the calls, and of each call with the step behind it."""
    actions: dict[str, Callable[[], Any]] = {"nothing": lambda: None, "copy": case.plain, "commit": case.state.commit}
    times: dict[str, list[float]] = {f"{name} {what}": [] for name in actions for what in ("call", "all")}
    for number in range(rounds + WARM):
        for name in random.sample(list(actions), len(actions)):
            case.step()
            begun = time.perf_counter()
            kept = actions[name]()
            called = time.perf_counter()
            case.step()
            ended = time.perf_counter()
            del kept
            if number >= WARM:
                times[f"{name} call"].append(1000 * (called - begun))
                times[f"{name} all"].append(1000 * (ended - begun))
    return times


def line(name: str, times: dict[str, list[float]]) -> str:
    """A row of the table."""
    cells = [f"{name:>16}", f"{statistics.median(times['nothing all']):10.1f}"]
    for action in ("copy", "commit"):
        middle, low, high = difference(times[f"{action} all"], times["nothing all"])
        cells.append(f"{statistics.median(times[f'{action} call']):14.2f}")
        cells.append(f"{f'{middle:.1f} [{low:.1f}, {high:.1f}]':>24}")
    return "".join(cells)


def main() -> int:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--frameworks", default="torch,tensorflow,keras-jax,numpy")
    parser.add_argument("--megabytes", type=float, default=100)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--alone", help=argparse.SUPPRESS)  # the framework of this process
    args = parser.parse_args()
    if args.alone:
        cases = {"torch": torch_case, "tensorflow": tensorflow_case, "numpy": numpy_case}
        print(line(args.alone, measured(cases.get(args.alone, keras_case)(args.megabytes), args.rounds)), flush=True)
        return 0
    threads = os.environ.get("OMP_NUM_THREADS", "one a core")
    print(f"{os.cpu_count()} cores, threads {threads}, {args.megabytes:g} MB, {args.rounds} rounds; milliseconds")
    heads = (("framework", 16), ("step", 10), ("deep copy", 14), ("step longer by", 24), ("commit", 14))
    print("".join(f"{head:>{width}}" for head, width in (*heads, ("step longer by", 24))), flush=True)
    for name in args.frameworks.split(","):
        environ = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": BACKENDS.get(name, "")}
        environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT / "python"), os.environ.get("PYTHONPATH")]))
        again = ["--alone", name, "--megabytes", str(args.megabytes), "--rounds", str(args.rounds)]
        subprocess.run([sys.executable, __file__, *again], env=environ, check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
