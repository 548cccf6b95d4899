"""A training script in the way of Amazon SageMaker: hyperparameters are command line arguments, folders come from the
environment, rank 0 writes checkpoints and the model.

    horovodrun -np 2 python examples/keras_sagemaker.py --epochs 4 --learning-rate 0.05 --momentum 0.9

The numbered changes are what makes a script for one process a distributed one. Each channel, SM_CHANNEL_TRAIN,
SM_CHANNEL_VALIDATION and SM_CHANNEL_TEST, is a folder with a file digits.npz; --write-data FOLDER makes them for your
bucket. Without channels the data come from scikit-learn (pip install scikit-learn).
"""

import argparse
import os
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

# Change 1: import horovod for Keras on TensorFlow.
import horovod.tensorflow.keras as hvd

CHANNELS = {"train": 0.6, "validation": 0.2, "test": 0.2}  # and their shares of scikit-learn's digits


def split_digits():
    """By channel, images of shape [count, 8, 8, 1] and labels of shape [count]."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = digits.images[..., None].astype("float32") / 16
    order = np.random.default_rng(1).permutation(len(images))
    ends = (np.cumsum(list(CHANNELS.values()))[:-1] * len(images)).astype(int)
    return {name: (images[part], digits.target[part]) for name, part in zip(CHANNELS, np.split(order, ends))}


def load_data(folders):
    """By channel, images and labels: from its folder, or from scikit-learn where no channel has one."""
    if not any(folders.values()):
        return split_digits()
    for name, folder in folders.items():
        if not folder:
            raise SystemExit(f"The channel {name} is missing: give --{name} or SM_CHANNEL_{name.upper()}.")
    files = {name: np.load(Path(folder) / "digits.npz") for name, folder in folders.items()}
    return {name: (file["images"], file["labels"]) for name, file in files.items()}


def make_model(learning_rate, momentum, decay, size):
    model = keras.Sequential([
        keras.Input((8, 8, 1)),
        keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
        keras.layers.BatchNormalization(),
        keras.layers.MaxPooling2D(),
        keras.layers.Flatten(),
        keras.layers.Dropout(0.2),
        keras.layers.Dense(10, activation="softmax"),
    ])  # fmt: skip
    # Change 4: scale the learning rate with the number of ranks. The schedule is what Keras 2's decay= meant:
    # rate / (1 + decay * steps).
    rate = keras.optimizers.schedules.InverseTimeDecay(learning_rate * size, decay_steps=1, decay_rate=decay)
    optimizer = keras.optimizers.SGD(rate, momentum=momentum)
    # Change 5: the distributed optimizer averages the gradients.
    optimizer = hvd.DistributedOptimizer(optimizer)
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def arguments():
    # Change 8: hyperparameters are arguments.
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=32, help="of one rank")
    parser.add_argument("--learning-rate", type=float, default=0.02, help="of one rank")
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--decay", "--weight-decay", type=float, default=2e-4, help="of the learning rate")
    parser.add_argument("--model-dir", default=os.environ.get("SM_MODEL_DIR", "model"))
    for name in CHANNELS:
        parser.add_argument(f"--{name}", default=os.environ.get(f"SM_CHANNEL_{name.upper()}"), help="folder")
    parser.add_argument("--write-data", type=Path, help="make the channels in this folder, and end")
    return parser.parse_args()


def main():
    args = arguments()
    if args.write_data:
        for name, (images, labels) in split_digits().items():
            (args.write_data / name).mkdir(parents=True, exist_ok=True)
            np.savez(args.write_data / name / "digits.npz", images=images, labels=labels)
        return
    # Change 2: initialise, and get the number of ranks.
    hvd.init()
    size = hvd.size()
    # Change 3: one GPU per process.
    gpus = tf.config.list_physical_devices("GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
    data = load_data({name: getattr(args, name) for name in CHANNELS})
    images, labels = data["train"]
    model = make_model(args.learning_rate, args.momentum, args.decay, size)
    # Change 6: equal starts, metrics of all ranks, and checkpoints on the first rank only.
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
    os.makedirs(args.model_dir, exist_ok=True)
    if hvd.rank() == 0:
        callbacks.append(keras.callbacks.ModelCheckpoint(os.path.join(args.model_dir, "checkpoint-{epoch}.keras")))
    # Change 7: every rank makes its share of an epoch's steps, on images of its own: all ranks shuffle alike.
    order = np.random.default_rng(2).permutation(len(images))
    steps = len(images) // (args.batch_size * size)
    mine = order[hvd.rank() :: size][: steps * args.batch_size]
    model.fit(
        images[mine], labels[mine], batch_size=args.batch_size, epochs=args.epochs, validation_data=data["validation"],
        callbacks=callbacks, verbose=2 if hvd.rank() == 0 else 0,
    )  # fmt: skip
    loss, accuracy = model.evaluate(*data["test"], verbose=0)
    if hvd.rank() == 0:
        model.save(os.path.join(args.model_dir, "model.keras"))
        print(
            f"RESULT ranks {size} test images {len(data['test'][0])} loss {loss:.4f} accuracy {accuracy:.4f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
