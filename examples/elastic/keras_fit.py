"""Train with model.fit on scikit-learn's handwritten digits while ranks die and come, on any backend of Keras.

    KERAS_BACKEND=torch horovodrun -np 2 --min-np 1 python examples/elastic/keras_fit.py

Kill a rank meanwhile, whichever you like: the others go on from the last commit, and another one takes its place.

Needs scikit-learn, for its data: pip install scikit-learn.
"""

import argparse
import hashlib
import json

import keras
import numpy as np
from sklearn.datasets import load_digits

import horovod.keras as hvd


def use_own_gpu():
    """Gives this rank a GPU of its own, where there are any: before the backend uses one."""
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        gpus = tf.config.list_physical_devices("GPU")
        for gpu in gpus:
            tf.config.experimental.set_memory_growth(gpu, True)
        if gpus:
            tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
    elif backend == "torch":
        import torch

        if torch.cuda.is_available():
            torch.cuda.set_device(hvd.local_rank())
    elif backend == "jax":
        import jax

        jax.config.update("jax_cuda_visible_devices", str(hvd.local_rank()))


def load_data(test_count=360):
    digits = load_digits()
    images = digits.images[..., None].astype("float32") / 16
    return (images[test_count:], digits.target[test_count:]), (images[:test_count], digits.target[:test_count])


def make_model():
    return keras.Sequential([
        keras.Input((8, 8, 1)),
        keras.layers.Conv2D(16, 3, activation="relu"),
        keras.layers.MaxPooling2D(),
        keras.layers.Flatten(),
        keras.layers.Dense(64, activation="relu"),
        keras.layers.Dense(10),
    ])  # fmt: skip


def own_share(images, labels, epoch):
    """This rank's part of the data, shuffled anew for each beginning; of equal length on all ranks, which must make
    equally many steps."""
    order = np.random.default_rng(epoch).permutation(len(images))
    own = order[: len(order) // hvd.size() * hvd.size()][hvd.rank() :: hvd.size()]
    return images[own], labels[own]


def hash_of(model):
    return hashlib.sha256(b"".join(weight.tobytes() for weight in model.get_weights())).digest()


@hvd.elastic.run
def train(state, data, test, args):
    state.batch = 0  # an epoch that was begun is begun anew
    state.model.fit(
        *own_share(*data, state.epoch),
        batch_size=args.batch_size,
        initial_epoch=state.epoch,
        epochs=args.epochs,
        validation_data=test,
        verbose=2 if hvd.rank() == 0 else 0,
        callbacks=[
            hvd.callbacks.MetricAverageCallback(),
            hvd.elastic.UpdateBatchStateCallback(state),
            hvd.elastic.UpdateEpochStateCallback(state),
            hvd.elastic.CommitStateCallback(state, args.batches_per_commit),
        ],
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=16, help="of each rank")
    parser.add_argument("--lr", type=float, default=0.02, help="for one rank")
    parser.add_argument("--batches-per-commit", type=int, default=4)
    args = parser.parse_args()
    hvd.init()
    use_own_gpu()
    keras.utils.set_random_seed(hvd.rank())  # different on purpose: the state makes the ranks equal
    data, test = load_data()
    model = make_model()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(args.lr * hvd.size(), momentum=0.9))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"])
    state = hvd.elastic.KerasState(model, epoch=0, batch=0)

    def scale_rate():
        optimizer.learning_rate = args.lr * hvd.size()

    state.register_reset_callbacks([scale_rate])
    train(state, data, test, args)
    digest = np.frombuffer(hash_of(model), np.uint8)[None]
    equal = bool((keras.ops.convert_to_numpy(hvd.allgather(digest)) == digest).all())
    accuracy = model.evaluate(*test, verbose=0)[1]
    if hvd.rank() == 0:
        result = {"accuracy": accuracy, "size": hvd.size(), "equal": equal, "lr": float(optimizer.learning_rate)}
        print("RESULT", json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
