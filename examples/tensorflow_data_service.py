"""Train on scikit-learn's digits, with the input pipeline running in a data service.

    horovodrun -np 4 python -m horovod.tensorflow.data.compute_worker /tmp/compute.json &
    horovodrun -np 2 python examples/tensorflow_data_service.py /tmp/compute.json

Start the compute job with --dispatchers 2 for a dispatcher per training rank, or with --dispatcher-side training to
run the dispatcher in the training job: this script serves all three. Its end is the end of the compute job.
"""

import argparse

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

import horovod.tensorflow as hvd
from horovod.tensorflow.data.compute_service import TfDataServiceConfig, tf_data_service

BATCH = 32


def augmented(image, label):
    """The work that is worth moving away: here a shift by up to one pixel and some noise."""
    image = tf.image.random_crop(tf.pad(image, [[1, 1], [1, 1], [0, 0]]), [8, 8, 1])
    return image + tf.random.normal([8, 8, 1], stddev=0.05), label


def make_dataset(images, labels):
    dataset = tf.data.Dataset.from_tensor_slices((images, labels))
    return dataset.repeat().shuffle(2000).map(augmented).batch(BATCH)


def load_data(test_share=5):
    digits = load_digits()
    images = (digits.images / 16).astype(np.float32)[..., np.newaxis]
    labels = digits.target.astype(np.int64)
    order = np.random.default_rng(1).permutation(len(labels))
    test, train = order[: len(order) // test_share], order[len(order) // test_share :]
    return images[train], labels[train], images[test], labels[test]


def make_model():
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [layers.Input((8, 8, 1)), layers.Conv2D(32, 3, activation="relu"), layers.Conv2D(64, 3, activation="relu"),
         layers.Flatten(), layers.Dense(64, activation="relu"), layers.Dense(10)]
    )  # fmt: skip


def train(model, dataset, steps):
    optimizer = tf.keras.optimizers.SGD(0.05, momentum=0.9)
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def step(images, labels):
        with tf.GradientTape() as tape:
            loss = loss_of(labels, model(images, training=True))
        tape = hvd.DistributedGradientTape(tape)
        optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
        return loss

    for number, (images, labels) in enumerate(dataset.take(steps)):
        loss = step(images, labels)
        if number == 0:
            hvd.broadcast_variables(model.variables + optimizer.variables, root_rank=0)
        if number % 50 == 0 and hvd.rank() == 0:
            print(f"step {number}  loss {float(loss):.4f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("configfile", help="written by the compute job")
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()
    hvd.init()
    compute_config = TfDataServiceConfig.read(args.configfile, wait_for_file_creation=True)
    images, labels, test_images, test_labels = load_data()
    model, dataset = make_model(), make_dataset(images, labels)
    if compute_config.dispatcher_side == "training":
        with tf_data_service(compute_config, hvd.rank()) as address:
            distribute = tf.data.experimental.service.distribute("distributed_epoch", service=address)
            train(model, dataset.apply(distribute).prefetch(tf.data.AUTOTUNE), args.steps)
    else:
        dataset = dataset.send_to_data_service(compute_config, hvd.rank(), hvd.size())
        train(model, dataset.prefetch(tf.data.AUTOTUNE), args.steps)
    accuracy = np.mean(np.argmax(model(test_images), axis=1) == test_labels)
    # All ranks have read all that they need once they have all come here.
    accuracies = hvd.allgather_object(float(accuracy))
    if hvd.rank() == 0:
        compute_config.compute_client().shutdown()
        print(f"test accuracy {accuracies[0]:.4f} equal on all ranks: {len(set(accuracies)) == 1}", flush=True)


if __name__ == "__main__":
    main()
