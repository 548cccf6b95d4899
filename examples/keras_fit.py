"""Train a small network on scikit-learn's handwritten digits with model.fit, on Keras' TensorFlow, PyTorch or JAX.

    KERAS_BACKEND=jax python examples/keras_fit.py                        one process
    KERAS_BACKEND=jax horovodrun -np 2 python examples/keras_fit.py       two, same global batch

Every global batch is split over the ranks. Rank 0 saves the model to a file that loads without Horovod.

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


def load_data(test_share=5):
    digits = load_digits()
    images = digits.images[..., None].astype("float32") / 16
    order = np.random.default_rng(1).permutation(len(images))
    test, train = order[: len(order) // test_share], order[len(order) // test_share :]
    return (images[train], digits.target[train]), (images[test], digits.target[test])


def make_model():
    return keras.Sequential([
        keras.Input((8, 8, 1)),
        keras.layers.Conv2D(16, 3, activation="relu"),
        keras.layers.MaxPooling2D(),
        keras.layers.Flatten(),
        keras.layers.Dense(64, activation="relu"),
        keras.layers.Dense(10),
    ])  # fmt: skip


def own_share(images, labels):
    """This rank's part of the data, of equal length on all ranks: they must make equally many steps."""
    count = len(images) // hvd.size() * hvd.size()
    return images[:count][hvd.rank() :: hvd.size()], labels[:count][hvd.rank() :: hvd.size()]


def hash_of(model):
    return hashlib.sha256(b"".join(weight.tobytes() for weight in model.get_weights())).hexdigest()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=64, help="of all ranks together")
    parser.add_argument("--lr", type=float, default=0.1, help="for all ranks together")
    parser.add_argument("--save", help="file for the trained model, *.keras")
    args = parser.parse_args()
    hvd.init()
    use_own_gpu()
    keras.utils.set_random_seed(hvd.rank())  # different on purpose: the first callback makes the ranks equal
    train, test = load_data()
    images, labels = own_share(*train)
    model = make_model()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(args.lr, momentum=0.9))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"])
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        hvd.callbacks.LearningRateWarmupCallback(args.lr, warmup_epochs=2),
        hvd.callbacks.LearningRateScheduleCallback(args.lr, lambda epoch: 0.2, start_epoch=args.epochs * 3 // 4),
    ]
    history = model.fit(
        images,
        labels,
        batch_size=args.batch_size // hvd.size(),
        epochs=args.epochs,
        validation_data=test,
        callbacks=callbacks,
        verbose=2 if hvd.rank() == 0 else 0,
    ).history
    digest = np.frombuffer(bytes.fromhex(hash_of(model)), np.uint8)[None]
    equal = bool((keras.ops.convert_to_numpy(hvd.allgather(digest)) == digest).all())
    if hvd.rank() == 0:
        print(f"{keras.backend.backend()}: {hvd.size()} rank(s), weights {'equal' if equal else 'DIFFERENT'}")
        print(
            "RESULT", json.dumps({"equal": equal, "loss": history["loss"], "val": history["val_accuracy"]}), flush=True
        )
        if args.save:
            model.save(args.save)


if __name__ == "__main__":
    main()
