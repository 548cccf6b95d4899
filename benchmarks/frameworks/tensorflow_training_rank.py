"""One process of `tensorflow_training`: `tensorflow_training_rank.py ours|strategy MODEL`. The first prints ms."""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from typing import Any, Callable

import numpy as np
import tensorflow as tf

ROUNDS = 10
_SLICE_S = 0.4

_Step = Callable[[], Any]


def make_model(which: str) -> tuple[Any, Any, Any]:
    """A Keras model, a batch of images and their labels."""
    layers = tf.keras.layers
    numbers = np.random.default_rng(0)
    if which == "mlp":
        model = tf.keras.Sequential(
            [layers.Input((784,)), *(layers.Dense(1024, activation="relu") for _ in range(2)), layers.Dense(10)]
        )
        shape = (64, 784)
    else:  # as the ResNet of 20 layers for CIFAR-10 (He et al. 2015)
        shape = (32, 32, 32, 3)
        inputs = layers.Input(shape[1:])
        x = layers.Conv2D(16, 3, padding="same", use_bias=False)(inputs)
        for width in (16, 32, 64):
            for block in range(3):
                stride = 2 if width > 16 and block == 0 else 1
                y = layers.ReLU()(layers.BatchNormalization()(x))
                y = layers.Conv2D(width, 3, strides=stride, padding="same", use_bias=False)(y)
                y = layers.ReLU()(layers.BatchNormalization()(y))
                y = layers.Conv2D(width, 3, padding="same", use_bias=False)(y)
                x = layers.Conv2D(width, 1, strides=stride)(x) if stride == 2 else x
                x = layers.Add()([x, y])
        x = layers.GlobalAveragePooling2D()(layers.ReLU()(layers.BatchNormalization()(x)))
        model = tf.keras.Model(inputs, layers.Dense(10)(x))
    images = tf.constant(numbers.normal(size=shape).astype("float32"))
    return model, images, tf.constant(numbers.integers(10, size=shape[0]))


def make_step(which: str, wrap: Callable[[Any], Any]) -> _Step:
    """A training step of a model of its own."""
    model, images, labels = make_model(which)
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")
    optimizer = tf.keras.optimizers.SGD(1e-4, momentum=0.9)
    optimizer.build(model.trainable_variables)

    def step() -> Any:
        with tf.GradientTape() as tape:
            value = loss(labels, model(images, training=True))
        gradients = wrap(tape).gradient(value, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return value

    return step


def compare(pairs: dict[str, tuple[_Step, _Step]], first: bool, wait: Callable[[], None]) -> dict[str, float]:
    """Median ms of the first step of each pair, made by all together, and of the second, made by the first process
    alone."""
    times: dict[str, list[float]] = {}
    for number in range(ROUNDS + 1):
        for name, (together, alone) in pairs.items():
            for kind, step in (("together", together), ("alone", alone)):
                wait()
                if kind == "alone" and not first:
                    continue
                kept = times.setdefault(f"{name} {kind}", [])
                count = 3 if not kept else max(3, int(_SLICE_S * 1e3 / statistics.median(kept)))
                # The number of steps together is the same everywhere: it may not depend on a clock.
                for _ in range(count if kind == "alone" else 10):
                    start = time.perf_counter()
                    step()
                    if number:  # the first round traces and compiles
                        kept.append(1e3 * (time.perf_counter() - start))
    return {name: statistics.median(found) for name, found in times.items() if found}


def ours(which: str) -> dict[str, float]:
    """All ways of this project."""
    import horovod.tensorflow as hvd

    hvd.init()
    pairs: dict[str, tuple[_Step, _Step]] = {}
    for name, compiled in (
        ("function", tf.function),
        ("eager", lambda step: step),
        ("jit", tf.function(jit_compile=True)),
    ):
        pairs[name] = (
            compiled(make_step(which, hvd.DistributedGradientTape)),
            compiled(make_step(which, lambda tape: tape)),
        )
    token = tf.zeros(1)
    found = compare(pairs, hvd.rank() == 0, lambda: hvd.allreduce(token, name="wait"))
    return found if hvd.rank() == 0 else {}


def strategy(which: str) -> dict[str, float]:
    """TensorFlow's own."""
    index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    options = tf.distribute.experimental.CommunicationOptions(
        implementation=tf.distribute.experimental.CommunicationImplementation.RING
    )
    made = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    with made.scope():
        replica_step = make_step(which, lambda tape: tape)
    together = tf.function(lambda: made.run(replica_step))
    alone = tf.function(make_step(which, lambda tape: tape))

    @tf.function
    def meet() -> Any:
        return made.run(lambda: tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, tf.ones(1)))

    found = compare({"strategy": (together, alone)}, index == 0, lambda: meet())
    return found if index == 0 else {}


def main() -> None:
    # One core is a process's device: alone it may not use the other's.
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    found = {"ours": ours, "strategy": strategy}[sys.argv[1]](sys.argv[2])
    if found:
        sys.stdout.write(f"FIGURES {json.dumps(found)}\n")


if __name__ == "__main__":
    main()
