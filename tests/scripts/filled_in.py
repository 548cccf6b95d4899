"""What the quoted scripts leave to their reader: a data set and a model, here scikit-learn's handwritten digits; and
what the tests look at.

`tf` is TensorFlow as the script has imported it.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

import horovod.tensorflow as hvd

BATCHES = 240  # of all ranks together
PART = 64


def digits() -> tuple[Any, Any]:
    """Images in 0 ... 1, and what they show."""
    data = load_digits()
    return (data.images / 16.0).astype("float32"), data.target.astype("int64")


def batches(tf: Any) -> Any:
    """This rank's share of the training, a data set that ends; equally many batches on every rank."""
    data = tf.data.Dataset.from_tensor_slices(digits()).shard(hvd.size(), hvd.rank())
    return data.repeat().shuffle(2000, seed=hvd.rank()).batch(32).take(BATCHES // hvd.size())


def stream(tf: Any) -> Any:
    """Digits without end, and a number for each that never comes again: so who reads can tell what was delivered."""
    images, labels = digits()

    def part(start: Any) -> Any:
        numbers = start + tf.range(PART, dtype="int64")
        return tf.gather(images, numbers % len(labels)), tf.gather(labels, numbers % len(labels)), numbers

    # The data service asks its dispatcher for each element of the source: a part, since a digit were little for that.
    return tf.data.Dataset.range(0, 2**40, PART).map(part).unbatch()


def loss_of_graph(tf: Any) -> Any:
    """The loss of a model in a graph of TensorFlow 1."""
    images, labels = tf.data.make_one_shot_iterator(batches(tf)).get_next()
    hidden = tf.nn.relu(_dense(tf, tf.reshape(images, [-1, 64]), 64, "hidden"))
    return tf.losses.sparse_softmax_cross_entropy(labels, _dense(tf, hidden, 10, "logits"))


def _dense(tf: Any, inputs: Any, outputs: int, name: str) -> Any:
    with tf.variable_scope(name):
        kernel = tf.get_variable("kernel", [inputs.shape[1], outputs])
        return tf.matmul(inputs, kernel) + tf.get_variable("bias", [outputs], initializer=tf.zeros_initializer())


def recording_hook(tf: Any, loss: Any) -> Any:
    """Reports when a monitored session of TensorFlow 1 ends."""

    class Hook(tf.train.SessionRunHook):
        def begin(self) -> None:
            self.losses: list[float] = []
            self.weights = tf.trainable_variables()

        def before_run(self, run_context: Any) -> Any:
            return tf.train.SessionRunArgs(loss)

        def after_run(self, run_context: Any, run_values: Any) -> None:
            self.losses.append(run_values.results)

        def end(self, session: Any) -> None:
            report(self.losses, session.run(self.weights))

    return Hook()


def keras_model(tf: Any) -> Any:
    """A model of Keras; gives probabilities."""
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [layers.Input((8, 8)), layers.Flatten(), layers.Dense(64, "relu"), layers.Dense(10, "softmax")]
    )


def train(tf: Any, dataset: Any, steps: int = 50) -> None:
    """Trains on a `stream` and reports, also the numbers of the elements that came."""
    model, loss, opt = keras_model(tf), tf.losses.SparseCategoricalCrossentropy(), tf.optimizers.SGD(0.1)
    hvd.broadcast_variables(model.variables, root_rank=0)

    @tf.function
    def step(images: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            value = loss(labels, model(images, training=True))
        tape = hvd.DistributedGradientTape(tape)
        opt.apply_gradients(zip(tape.gradient(value, model.trainable_variables), model.trainable_variables))
        return value

    losses, numbers = [], []
    for images, labels, number in dataset.take(steps):
        losses.append(step(images, labels))
        numbers += number.numpy().tolist()
    report(losses, model.variables, numbers=numbers)


def report(losses: Sequence[Any], weights: Iterable[Any], **more: Any) -> None:
    """One line for the reader, and a file for the test."""
    end = losses[-max(1, len(losses) // 10) :]
    bytes_of_weights = b"".join(np.asarray(each).tobytes() for each in weights)
    result = {
        "first": float(losses[0]),
        "last": float(np.mean([float(each) for each in end])),
        "steps": len(losses),
        "weights": hashlib.sha256(bytes_of_weights).hexdigest()[:16],
    }
    print(f"rank {hvd.rank()} of {hvd.size()}: {result}", flush=True)
    if RESULTS:
        with open("result.json", "w") as file:
            json.dump({**result, **more}, file)


def option(name: str) -> bool:
    """Is this word on the command line?"""
    return name in sys.argv[1:]


RESULTS = os.environ.get("SCRIPT_RESULTS")
if RESULTS:
    # Each rank works in a folder of its own, so that the test sees who has saved what.
    folder = os.path.join(RESULTS, f"rank{os.environ['HOROVOD_RANK']}")
    os.mkdir(folder)
    os.chdir(folder)
