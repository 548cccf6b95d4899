"""A training loop of TensorFlow 2 on scikit-learn's handwritten digits while ranks die and come.

    horovodrun -np 2 --min-np 1 python examples/elastic/tensorflow2_tape.py [--step function|eager|jit]

Kill a rank meanwhile, whichever you like: the others go on from the last commit, and another one takes its place. Needs
scikit-learn, for its data: pip install scikit-learn.
"""

import argparse
import hashlib
import itertools
import json

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

import horovod.tensorflow as hvd


def load_data(test_count=360):
    digits = load_digits()
    images, labels = digits.images[..., None].astype("float32") / 16, digits.target.astype("int64")
    return (images[test_count:], labels[test_count:]), (images[:test_count], labels[:test_count])


def make_model():
    return tf.keras.Sequential([
        tf.keras.Input((8, 8, 1)),
        tf.keras.layers.Conv2D(16, 3, activation="relu"),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(64, activation="relu"),
        tf.keras.layers.Dense(10),
    ])  # fmt: skip


def make_step(model, optimizer, kind):
    loss = tf.losses.SparseCategoricalCrossentropy(from_logits=True)

    def step(images, labels):
        with tf.GradientTape() as tape:
            value = loss(labels, model(images, training=True))
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(value, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return value

    return step if kind == "eager" else tf.function(step, jit_compile=kind == "jit")


def batches(images, labels, epoch, batch_size):
    """This rank's share of every batch. All ranks shuffle alike; what does not divide is left out."""
    order = np.random.default_rng(epoch).permutation(len(images))
    for start in range(0, len(order) - batch_size + 1, batch_size):
        own = order[start : start + batch_size][hvd.rank() :: hvd.size()]
        yield tf.constant(images[own]), tf.constant(labels[own])


def accuracy(model, images, labels):
    return float(np.mean(np.argmax(model(images), axis=1) == labels))


@hvd.elastic.run
def train(state, step, data, test, args):
    while state.epoch < args.epochs:
        for images, labels in itertools.islice(batches(*data, state.epoch, args.batch_size), state.batch, None):
            step(images, labels)
            state.batch += 1
            if state.batch % args.batches_per_commit == 0:
                state.commit()
        state.epoch, state.batch = state.epoch + 1, 0
        state.commit()
        if hvd.rank() == 0:
            share = accuracy(state.model, *test)
            print(f"epoch {state.epoch}  {hvd.size()} rank(s)  accuracy {share:.2%}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=32, help="of all ranks together")
    parser.add_argument("--batches-per-commit", type=int, default=4)
    parser.add_argument("--step", choices=("function", "eager", "jit"), default="function")
    args = parser.parse_args()
    hvd.init()
    # One GPU per process.
    gpus = tf.config.list_physical_devices("GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
    tf.random.set_seed(hvd.rank())  # different on purpose: the state makes the ranks equal
    data, test = load_data()
    model, optimizer = make_model(), tf.optimizers.SGD(0.02, momentum=0.9)
    state = hvd.elastic.TensorFlowKerasState(model, optimizer, epoch=0, batch=0)
    train(state, make_step(model, optimizer, args.step), data, test, args)
    weights = b"".join(np.asarray(variable).tobytes() for variable in model.variables)
    equal = len(set(hvd.allgather_object(hashlib.sha256(weights).hexdigest()))) == 1
    if hvd.rank() == 0:
        result = {"accuracy": accuracy(model, *test), "size": hvd.size(), "equal": equal}
        print("RESULT", json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
