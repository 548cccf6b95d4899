"""A training loop with `tf.GradientTape` on scikit-learn's handwritten digits.

    horovodrun -np 2 python examples/tensorflow2_tape.py [--steps 400] [--checkpoint DIR]

Needs scikit-learn, for its data: pip install scikit-learn.
"""

import argparse
import hashlib

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

import horovod.tensorflow as hvd


def make_dataset():
    digits = load_digits()
    images = (digits.images / 16.0).astype("float32")[..., None]
    data = tf.data.Dataset.from_tensor_slices((images, digits.target.astype("int64")))
    return data.shard(hvd.size(), hvd.rank()).repeat().shuffle(2000, seed=hvd.rank()).batch(32)


def make_model():
    return tf.keras.Sequential(
        [
            tf.keras.layers.Input((8, 8, 1)),
            tf.keras.layers.Conv2D(32, 3, activation="relu"),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(64, activation="relu"),
            tf.keras.layers.Dense(10, activation="softmax"),
        ]
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400, help="of all ranks together")
    parser.add_argument("--checkpoint", help="rank 0 saves here")
    arguments = parser.parse_args()

    hvd.init()

    # One GPU per process.
    gpus = tf.config.list_physical_devices("GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")

    model = make_model()
    loss = tf.losses.SparseCategoricalCrossentropy()
    opt = tf.optimizers.Adam(0.001 * hvd.size())
    checkpoint = tf.train.Checkpoint(model=model, optimizer=opt)

    @tf.function
    def training_step(images, labels, first_batch):
        with tf.GradientTape() as tape:
            probs = model(images, training=True)
            loss_value = loss(labels, probs)

        # Horovod: gradients of all ranks.
        tape = hvd.DistributedGradientTape(tape)
        grads = tape.gradient(loss_value, model.trainable_variables)
        opt.apply_gradients(zip(grads, model.trainable_variables))

        # Horovod: the same start everywhere, after the first step has made the optimizer's variables.
        if first_batch:
            hvd.broadcast_variables(model.variables, root_rank=0)
            hvd.broadcast_variables(opt.variables, root_rank=0)
        return loss_value

    for batch, (images, labels) in enumerate(make_dataset().take(arguments.steps // hvd.size())):
        loss_value = training_step(images, labels, batch == 0)
        if batch % 50 == 0 and hvd.local_rank() == 0:
            print(f"Step #{batch}\tLoss: {loss_value:.6f}")

    if hvd.rank() == 0 and arguments.checkpoint:
        checkpoint.save(arguments.checkpoint)
    weights = b"".join(np.asarray(variable).tobytes() for variable in model.variables)
    hashes = hvd.allgather_object(hashlib.sha256(weights).hexdigest())
    if hvd.rank() == 0:
        print(f"{'equal' if len(set(hashes)) == 1 else 'DIFFERENT'} weights on {hvd.size()} ranks: {hashes[0][:16]}")


if __name__ == "__main__":
    main()
