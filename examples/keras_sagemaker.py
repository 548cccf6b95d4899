"""A training script in the way of Amazon SageMaker: hyper-parameters are command line arguments, folders come from the
environment, rank 0 writes checkpoints and the model.

    horovodrun -np 2 python examples/keras_sagemaker.py --epochs 4 --learning-rate 0.05 --momentum 0.9

The numbered changes are what makes a script for one process a distributed one.

Needs scikit-learn, for its data: pip install scikit-learn.
"""

import argparse
import os

import keras
import numpy as np
from sklearn.datasets import load_digits

# Change 1: import horovod for Keras on TensorFlow.
import horovod.tensorflow.keras as hvd


def load_split(share):
    """Training and validation data; scikit-learn's digits stand in for the channels that SageMaker mounts."""
    digits = load_digits()
    images = digits.images[..., None].astype("float32") / 16
    labels = keras.utils.to_categorical(digits.target, 10)
    held_back = int(len(images) * share)
    return (images[held_back:], labels[held_back:]), (images[:held_back], labels[:held_back])


def make_model(learning_rate, momentum, weight_decay, size):
    model = keras.Sequential([
        keras.Input((8, 8, 1)),
        keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
        keras.layers.BatchNormalization(),
        keras.layers.MaxPooling2D(),
        keras.layers.Flatten(),
        keras.layers.Dropout(0.2),
        keras.layers.Dense(10, activation="softmax"),
    ])  # fmt: skip
    # Change 4: scale the learning rate with the number of ranks.
    optimizer = keras.optimizers.SGD(learning_rate * size, momentum=momentum, weight_decay=weight_decay)
    # Change 5: the distributed optimizer averages the gradients.
    optimizer = hvd.DistributedOptimizer(optimizer)
    model.compile(optimizer, "categorical_crossentropy", metrics=["accuracy"])
    return model


def main():
    # Change 8: hyper-parameters are arguments.
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=32, help="of one rank")
    parser.add_argument("--learning-rate", type=float, default=0.02, help="of one rank")
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--weight-decay", type=float, default=2e-4)
    parser.add_argument("--model-dir", default=os.environ.get("SM_MODEL_DIR", "model"))
    args = parser.parse_args()
    # Change 2: initialise, and get the number of ranks.
    hvd.init()
    size = hvd.size()
    # Change 3, one GPU per process, is with TensorFlow 2:
    #   gpus = tf.config.list_physical_devices("GPU"); tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
    (images, labels), validation = load_split(share=0.2)
    model = make_model(args.learning_rate, args.momentum, args.weight_decay, size)
    # Change 6: equal starts, metrics of all ranks, and checkpoints on the first rank only.
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        hvd.callbacks.LearningRateWarmupCallback(args.learning_rate * size, warmup_epochs=2),
    ]
    os.makedirs(args.model_dir, exist_ok=True)
    if hvd.rank() == 0:
        callbacks.append(keras.callbacks.ModelCheckpoint(os.path.join(args.model_dir, "checkpoint-{epoch}.keras")))
    # Change 7: every rank makes its share of an epoch's steps, on batches of its own.
    order = np.random.default_rng(hvd.rank()).permutation(len(images))
    steps = len(images) // (args.batch_size * size)
    mine = order[: steps * args.batch_size]
    model.fit(
        images[mine], labels[mine], batch_size=args.batch_size, epochs=args.epochs, validation_data=validation,
        callbacks=callbacks, verbose=2 if hvd.rank() == 0 else 0,
    )  # fmt: skip
    loss, accuracy = model.evaluate(*validation, verbose=0)
    if hvd.rank() == 0:
        model.save(os.path.join(args.model_dir, "model.keras"))
        print(f"RESULT ranks {size} validation loss {loss:.4f} accuracy {accuracy:.4f}", flush=True)


if __name__ == "__main__":
    main()
