"""--check-parameters 2 with TensorFlow: tapes in eager mode and in a function, and Keras' fit with a plain optimizer.
Run on every rank; raises on the first thing that is not so."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import tensorflow as tf

import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvd_keras
from horovod._core.errors import MismatchError

ERRORS = (MismatchError, tf.errors.OpError)  # the latter from inside a graph
X = np.arange(8, dtype=np.float32).reshape(4, 2) / 8


def told(what: str, words: str, run: Callable[[], Any]) -> None:
    try:
        run()
    except ERRORS as error:
        assert words in str(error), f"{what}: {error}"
        print(f"passed: {what}", flush=True)
    else:
        raise AssertionError(f"rank {hvd.rank()}, {what}: nothing was told")


def training(start: float, wrap: Callable[[Any], Any]) -> Callable[[], None]:
    """Three steps with a tape, from a start that may be this rank's own."""
    weight = tf.Variable([start, 2.0], name="weight")

    def step() -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(weight * X[hvd.rank()])
        (gradient,) = hvd.DistributedGradientTape(tape).gradient(loss, [weight])
        weight.assign_sub(0.1 * gradient)

    wrapped = wrap(step)

    def run() -> None:
        for _ in range(3):
            wrapped()

    return run


def a_plain_keras_optimizer() -> None:
    model = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)])
    model.compile(tf.keras.optimizers.SGD(0.1), "mse")
    model.fit(
        X * (1 + hvd.rank()),
        X.sum(axis=1),
        batch_size=1,
        verbose=0,
        callbacks=[hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0)],
    )


def main() -> None:
    hvd.init()
    for name, wrap in {"eager": lambda step: step, "function": tf.function}.items():
        training(1.0, wrap)()
        different = training(float(hvd.rank()), wrap)
        told(f"{name} tape", "After step 1 of an optimizer the only parameter differs", different)
    told("plain keras optimizer", "After step 2 of an optimizer all 2 parameters differ", a_plain_keras_optimizer)


main()
