"""Train a small network of equinox on scikit-learn's handwritten digits, with an optimizer of optax.

    python examples/jax/digits_equinox.py                     one process
    horovodrun -np 2 python examples/jax/digits_equinox.py    two, same global batch

Needs equinox, optax and scikit-learn.
"""

import argparse
import hashlib
import json

import equinox as eqx
import jax
import numpy as np
import optax
from sklearn.datasets import load_digits

import horovod.jax as hvd


def load_data():
    digits = load_digits()
    order = np.random.default_rng(1).permutation(len(digits.target))
    images, labels = digits.data[order].astype("float32") / 16, digits.target[order]
    return images[360:], labels[360:], images[:360], labels[:360]


def loss_of(model, images, labels):
    return optax.softmax_cross_entropy_with_integer_labels(jax.vmap(model)(images), labels).mean()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=64, help="of all ranks together")
    args = parser.parse_args()
    hvd.init()
    jax.config.update("jax_cuda_visible_devices", str(hvd.local_rank()))  # a GPU of its own for each process
    model = eqx.nn.MLP(64, 10, 128, 1, key=jax.random.key(hvd.rank()))  # different: the broadcast makes the ranks equal
    arrays, rest = eqx.partition(model, eqx.is_inexact_array)
    model = eqx.combine(hvd.broadcast_parameters(arrays, root_rank=0), rest)
    tx = hvd.DistributedOptimizer(optax.adam(3e-3))
    state = tx.init(eqx.filter(model, eqx.is_inexact_array))

    @eqx.filter_jit(donate="all")
    def train_step(model, state, images, labels):
        loss, grads = eqx.filter_value_and_grad(loss_of)(model, images, labels)
        updates, state = tx.update(grads, state, eqx.filter(model, eqx.is_inexact_array))
        return eqx.apply_updates(model, updates), state, loss

    images, labels, test_images, test_labels = load_data()
    for epoch in range(args.epochs):
        order, losses = np.random.default_rng(epoch).permutation(len(labels)), []
        for start in range(0, len(order) - args.batch_size + 1, args.batch_size):
            batch = order[start : start + args.batch_size][hvd.rank() :: hvd.size()]
            model, state, loss = train_step(model, state, images[batch], labels[batch])
            losses.append(loss)
        loss = float(hvd.metric_average(sum(losses) / len(losses)))
        accuracy = float((jax.vmap(model)(test_images).argmax(1) == test_labels).mean())
        if hvd.rank() == 0:
            print(f"epoch {epoch:2d}  loss {loss:.4f}  test accuracy {accuracy:.2%}")
    leaves = jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array))
    digest = hashlib.sha256(b"".join(np.asarray(leaf).tobytes() for leaf in leaves)).hexdigest()
    equal = len(set(hvd.allgather_object(digest))) == 1
    if hvd.rank() == 0:
        print("RESULT", json.dumps({"loss": loss, "accuracy": accuracy, "equal": equal}))


if __name__ == "__main__":
    main()
