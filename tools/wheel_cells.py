"""One rank of the wheel's matrix: every operation, and a step of an optimizer, in each way of a framework.

`python tools/wheel_cells.py FRAMEWORK`, by itself or as a rank of a launcher; FRAMEWORK is "numpy" or a backend of
Keras. Rank 0 prints a line per cell, "cell: WAY, RANKS, OPERATION: RESULT"; a wrong value ends the rank. `test_wheel`
runs it on the wheel and prints the table. Imports nothing of this checkout.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterator
from typing import Any, Callable

import numpy as np

OPERATIONS = ("allreduce", "allgather", "broadcast", "alltoall", "reducescatter", "step")
NONE = "none there"  # the interface has no such operation
WAYS = {
    "numpy": ("NumPy",),
    "torch": ("torch", "Keras on torch"),
    "tensorflow": ("TensorFlow", "tf.function", "XLA", "Keras on tensorflow"),
    "jax": ("Keras on jax",),
}

# Operation -> what this rank has of it, as an array.
Cells = dict[str, Callable[[], Any]]
Function = Callable[[Any], Any]


def right(rank: int, size: int) -> dict[str, Any]:
    """What each operation must give to a rank, see `operations` and `step`."""
    return {
        "allreduce": [size * (size + 1) / 2] * 3,
        "allgather": np.repeat(np.arange(size), 2),
        "broadcast": [size - 1] * 2,
        "alltoall": [10 * other + rank for other in range(size)],
        "reducescatter": [size * row + size * (size - 1) / 2 for row in (2 * rank, 2 * rank + 1)],
        "step": [-(size + 1) / 2],
    }


def operations(hvd: Any, tensor: Function, held: Callable[[Function], Function], way: str) -> Cells:
    """The operations of a module that has them all.

    Args:
        tensor: array -> tensor.
        held: puts a function of one tensor into what compiles it.
        way: begins the names.
    """
    rank, size = hvd.rank(), hvd.size()
    calls: dict[str, tuple[Any, Function]] = {
        "allreduce": (np.full(3, rank + 1), lambda t: hvd.allreduce(t, op=hvd.Sum, name=f"{way}.allreduce")),
        "allgather": (np.full(2, rank), lambda t: hvd.allgather(t, name=f"{way}.allgather")),
        "broadcast": (np.full(2, rank), lambda t: hvd.broadcast(t, size - 1, name=f"{way}.broadcast")),
        "alltoall": (10 * rank + np.arange(size), lambda t: hvd.alltoall(t, name=f"{way}.alltoall")),
        "reducescatter": (
            np.arange(2 * size) + rank,
            lambda t: hvd.reducescatter(t, op=hvd.Sum, name=f"{way}.reducescatter"),
        ),
    }
    return {
        kind: functools.partial(held(function), tensor(sent.astype(np.float32)))
        for kind, (sent, function) in calls.items()
        if hasattr(hvd, kind)
    }


def as_it_is(function: Function) -> Function:
    """For what is not compiled."""
    return function


def in_numpy() -> Iterator[tuple[str, Any, Cells]]:
    """NumPy has no optimizers."""
    import horovod.numpy as hvd

    hvd.init()
    yield "NumPy", hvd, operations(hvd, np.copy, as_it_is, "numpy")


def in_torch() -> Iterator[tuple[str, Any, Cells]]:
    """PyTorch, and Keras on it."""
    import torch

    import horovod.torch as hvd

    def step() -> Any:
        weight = torch.nn.Parameter(torch.zeros(1))
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], 1.0), [("weight", weight)])
        (weight * (hvd.rank() + 1)).sum().backward()
        optimizer.step()
        return weight.detach()

    hvd.init()
    yield "torch", hvd, {**operations(hvd, torch.from_numpy, as_it_is, "torch"), "step": step}
    yield from in_keras()


def in_tensorflow() -> Iterator[tuple[str, Any, Cells]]:
    """TensorFlow eager, in functions and compiled by XLA, and Keras on it."""
    import tensorflow as tf

    import horovod.tensorflow as hvd

    def step(held: Callable[[Function], Function]) -> Any:
        weight = tf.Variable([0.0])

        def descend(factor: Any) -> Any:
            with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
                loss = tf.reduce_sum(weight * factor)
            weight.assign_sub(tape.gradient(loss, [weight])[0])
            return weight.read_value()

        return held(descend)(tf.constant([hvd.rank() + 1.0]))

    hvd.init()
    ways: dict[str, Callable[[Function], Function]] = {
        "TensorFlow": as_it_is,
        "tf.function": tf.function,
        "XLA": lambda function: tf.function(function, jit_compile=True),
    }
    for way, held in ways.items():
        cells = operations(hvd, tf.constant, held, way)
        yield way, hvd, {**cells, "step": functools.partial(step, held)}
    yield from in_keras()


def in_keras() -> Iterator[tuple[str, Any, Cells]]:
    """Keras, which has no alltoall: on the backend that KERAS_BACKEND names."""
    import keras

    import horovod.keras as hvd

    def step() -> Any:
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")])
        # The gradient of (w x - y)^2 at w = 0 is -2 x y.
        model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(1.0)), "mse")
        model.fit(np.ones((1, 1)), np.full((1, 1), -(hvd.rank() + 1) / 2), batch_size=1, verbose=0)
        return np.asarray(model.get_weights()[0])[0]

    hvd.init()
    way = f"Keras on {keras.backend.backend()}"
    yield way, hvd, {**operations(hvd, np.copy, as_it_is, "keras"), "step": step}


FRAMEWORKS: dict[str, Callable[[], Iterator[tuple[str, Any, Cells]]]] = {
    "numpy": in_numpy,
    "torch": in_torch,
    "tensorflow": in_tensorflow,
    "jax": in_keras,
}


def main(framework: str) -> None:
    os.environ.setdefault("KERAS_BACKEND", framework)
    for way, hvd, cells in FRAMEWORKS[framework]():
        expected = right(hvd.rank(), hvd.size())
        for operation in OPERATIONS:
            result = NONE
            if operation in cells:
                got = np.asarray(cells[operation]())
                assert got.tolist() == np.asarray(expected[operation]).tolist(), (way, operation, got)
                result = "right"
            if hvd.rank() == 0:
                print(f"cell: {way}, {hvd.size()}, {operation}: {result}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
