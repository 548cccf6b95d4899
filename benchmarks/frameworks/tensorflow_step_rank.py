"""One rank of `tensorflow_step`: `tensorflow_step_rank.py ours|strategy SET`. Rank 0 prints the overheads in ms."""

from __future__ import annotations

import json
import statistics
import sys
import time
from typing import Any, Callable

import tensorflow as tf
from ranks.resnet50 import parameter_sizes

ROUNDS, STEPS = 12, 5

_Step = Callable[[], Any]


def shapes(which: str) -> list[tuple[int, ...]]:
    """The gradients of a model."""
    if which == "resnet50":
        return [(size,) for size in parameter_sizes()]
    if which == "small":
        return [(size,) for size in parameter_sizes() if size <= 16384]
    return [(784, 1024), (1024,), (1024, 1024), (1024,), (1024, 10), (10,)]


def overheads(pairs: dict[str, tuple[_Step, _Step]], together: Callable[[], None]) -> dict[str, float]:
    """Milliseconds that the first step of each pair takes beyond the second: medians, in alternating slices."""
    times: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in pairs}
    for number in range(ROUNDS + 1):
        for name, steps in pairs.items():
            for step, kept in zip(steps, times[name]):
                together()
                for _ in range(STEPS):
                    start = time.perf_counter()
                    step()
                    if number:  # the first round traces and compiles
                        kept.append(time.perf_counter() - start)
    return {
        name: 1e3 * (statistics.median(loaded) - statistics.median(plain)) for name, (loaded, plain) in times.items()
    }


def ours(which: str) -> dict[str, float]:
    """All ways of this project."""
    import torch

    import horovod.tensorflow as hvd
    import horovod.torch
    from horovod._core.training.reducer import ReductionOptions
    from horovod.tensorflow.gradients.reducer import GradientReduction

    hvd.init()
    torch.set_num_threads(1)
    variables = [tf.Variable(tf.zeros(shape)) for shape in shapes(which)]
    tensors = [torch.zeros(*shape) for shape in shapes(which)]
    reduction = GradientReduction(ReductionOptions())

    def plain() -> Any:
        return [variable + 1.0 for variable in variables]

    def reduced(scope: str) -> _Step:
        return lambda: reduction.reduce(plain(), variables, scope)

    def torch_plain() -> None:
        for tensor in tensors:
            tensor.add_(1.0)

    def torch_reduced() -> None:
        handles = []
        for index, tensor in enumerate(tensors):
            tensor.add_(1.0)
            handles.append(horovod.torch.allreduce_async_(tensor, name=f"gradient.{index}"))
        for handle in handles:
            horovod.torch.synchronize(handle)

    pairs: dict[str, tuple[_Step, _Step]] = {
        "torch": (torch_reduced, torch_plain),
        "function": (tf.function(reduced("function")), tf.function(plain)),
        "eager": (reduced("eager"), plain),
        "jit": (tf.function(reduced("jit"), jit_compile=True), tf.function(plain, jit_compile=True)),
    }
    found = overheads(pairs, horovod.torch.barrier)
    return found if hvd.rank() == 0 else {}


def strategy(which: str) -> dict[str, float]:
    """TensorFlow's own."""
    options = tf.distribute.experimental.CommunicationOptions(
        implementation=tf.distribute.experimental.CommunicationImplementation.RING
    )
    made = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    with made.scope():
        variables = [tf.Variable(tf.zeros(shape)) for shape in shapes(which)]

    def gradients() -> Any:
        return [variable + 1.0 for variable in variables]

    def reduced() -> Any:
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, gradients())

    @tf.function
    def loaded() -> Any:
        return made.run(reduced)

    @tf.function
    def plain() -> Any:
        return made.run(gradients)

    # Its steps are collective: they keep the workers together by themselves.
    return {"strategy": overheads({"s": (loaded, plain)}, lambda: None)["s"]}


def main() -> None:
    tf.config.threading.set_intra_op_parallelism_threads(1)
    found = {"ours": ours, "strategy": strategy}[sys.argv[1]](sys.argv[2])
    if found:
        sys.stdout.write(f"FIGURES {json.dumps(found)}\n")


if __name__ == "__main__":
    main()
