"""Train a small network on scikit-learn's handwritten digits with nothing but JAX, on any number of ranks.

    python examples/jax/digits.py                     one process
    horovodrun -np 2 python examples/jax/digits.py    two, same global batch: same training but for rounding

Every global batch is split over the ranks. Needs scikit-learn, for its data: pip install scikit-learn.
"""

import argparse
import hashlib
import json

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.datasets import load_digits

import horovod.jax as hvd


def use_own_gpu():
    """Gives this rank a GPU of its own, where there are any: before JAX uses one."""
    jax.config.update("jax_cuda_visible_devices", str(hvd.local_rank()))


def load_data(test_share=5):
    digits = load_digits()
    images = digits.data.astype("float32") / 16
    order = np.random.default_rng(1).permutation(len(images))
    test, train = order[: len(order) // test_share], order[len(order) // test_share :]
    return images[train], digits.target[train], images[test], digits.target[test]


def new_params(key, sizes=(64, 128, 10)):
    keys = jax.random.split(key, len(sizes) - 1)
    layers = zip(keys, sizes, sizes[1:])
    return [{"kernel": jax.random.normal(k, (n, m)) / np.sqrt(n), "bias": jnp.zeros(m)} for k, n, m in layers]


def logits_of(params, images):
    *hidden, last = params
    for layer in hidden:
        images = jax.nn.relu(images @ layer["kernel"] + layer["bias"])
    return images @ last["kernel"] + last["bias"]


def loss_of(params, images, labels):
    chosen = jax.nn.log_softmax(logits_of(params, images))[jnp.arange(len(labels)), labels]
    return -chosen.mean()


@jax.jit
def train_step(params, velocity, images, labels):
    loss, grads = hvd.value_and_grad(loss_of)(params, images, labels)  # the gradients of all ranks, averaged
    velocity = jax.tree.map(lambda v, g: 0.9 * v + g, velocity, grads)
    return jax.tree.map(lambda p, v: p - 0.05 * v, params, velocity), velocity, loss


def own_batches(count, batch_size, epoch):
    """This rank's share of every global batch of the epoch; all ranks shuffle alike."""
    order = np.random.default_rng(epoch).permutation(count)
    for start in range(0, count - batch_size + 1, batch_size):
        yield order[start : start + batch_size][hvd.rank() :: hvd.size()]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=64, help="of all ranks together")
    args = parser.parse_args()
    hvd.init()
    use_own_gpu()
    images, labels, test_images, test_labels = load_data()
    params = new_params(jax.random.key(hvd.rank()))  # different on purpose: the broadcast makes the ranks equal
    params = hvd.broadcast_parameters(params, root_rank=0)
    velocity = jax.tree.map(jnp.zeros_like, params)
    for epoch in range(args.epochs):
        losses = []
        for batch in own_batches(len(labels), args.batch_size, epoch):
            params, velocity, loss = train_step(params, velocity, images[batch], labels[batch])
            losses.append(loss)
        metrics = hvd.metric_average({"loss": sum(losses) / len(losses)})
        accuracy = float((logits_of(params, test_images).argmax(1) == test_labels).mean())
        if hvd.rank() == 0:
            print(f"epoch {epoch:2d}  loss {metrics['loss']:.4f}  test accuracy {accuracy:.2%}")
    digest = hashlib.sha256(b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(params))).hexdigest()
    equal = len(set(hvd.allgather_object(digest))) == 1
    if hvd.rank() == 0:
        print("RESULT", json.dumps({"loss": float(metrics["loss"]), "accuracy": accuracy, "equal": equal}))


if __name__ == "__main__":
    main()
