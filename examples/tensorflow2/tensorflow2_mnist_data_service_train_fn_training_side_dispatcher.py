"""Training with a data service whose dispatchers run in the training job."""

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

import horovod.tensorflow as hvd
from horovod.tensorflow.data.compute_service import TfDataServiceConfig, tf_data_service


def load_data(test_share=5):
    digits = load_digits()
    images = (digits.images / 16).astype(np.float32)[..., np.newaxis]
    labels = digits.target.astype(np.int64)
    order = np.random.default_rng(1).permutation(len(labels))
    test, train = order[: len(order) // test_share], order[len(order) // test_share :]
    return images[train], labels[train], images[test], labels[test]


def augmented(image, label):
    """The work that is worth moving away: here a shift by up to one pixel and some noise."""
    image = tf.image.random_crop(tf.pad(image, [[1, 1], [1, 1], [0, 0]]), [8, 8, 1])
    return image + tf.random.normal([8, 8, 1], stddev=0.05), label


def make_model():
    layers = tf.keras.layers
    model = [
        layers.Input((8, 8, 1)),
        layers.Conv2D(32, 3, activation="relu"),
        layers.Flatten(),
        layers.Dense(64, activation="relu"),
        layers.Dense(10),
    ]
    return tf.keras.Sequential(model)


def make_step(model, optimizer):
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def step(images, labels):
        with tf.GradientTape() as tape:
            loss = loss_of(labels, model(images, training=True))
        tape = hvd.DistributedGradientTape(tape)
        optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
        return loss

    return step


def train_fn(compute_config: TfDataServiceConfig, steps=200, reuse_dataset=False, round_robin=False):
    """Trains; the accuracy on digits that were not trained on. Collective."""
    rank, size = hvd.rank(), hvd.size()
    images, labels, test_images, test_labels = load_data()
    dataset = tf.data.Dataset.from_tensor_slices((images, labels))
    model, optimizer = make_model(), tf.keras.optimizers.SGD(0.05, momentum=0.9)
    step = make_step(model, optimizer)

    with tf_data_service(compute_config, rank) as dispatcher_address:
        distributed = tf.data.experimental.service.distribute(
            processing_mode="distributed_epoch",
            service=dispatcher_address,
            job_name="job" if reuse_dataset else None,
            consumer_index=rank if round_robin else None,
            num_consumers=size if round_robin else None,
        )
        dataset = (
            dataset.repeat()
            .shuffle(2000)
            .map(augmented)
            .batch(32)
            .apply(distributed)
            .prefetch(tf.data.experimental.AUTOTUNE)
        )

        for number, batch in enumerate(dataset.take(steps)):
            loss = step(*batch)
            if number == 0:
                hvd.broadcast_variables(model.variables + optimizer.variables, root_rank=0)
            if number % 50 == 0 and rank == 0:
                print(f"step {number}  loss {float(loss):.4f}", flush=True)

    return float(np.mean(np.argmax(model(test_images), axis=1) == test_labels))
