"""Train a small network on scikit-learn's handwritten digits with JAX and an optimizer of optax.

    python examples/jax/digits_optax.py                     one process
    horovodrun -np 2 python examples/jax/digits_optax.py    two, same global batch

Each step has two passes, whose gradients are added up before the ranks combine them. Needs scikit-learn and optax.
"""

import argparse
import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits

import horovod.jax as hvd

PASSES = 2


def load_data():
    digits = load_digits()
    order = np.random.default_rng(1).permutation(len(digits.target))
    images, labels = digits.data[order].astype("float32") / 16, digits.target[order]
    return images[360:], labels[360:], images[:360], labels[:360]


def new_params(key):
    first, second = jax.random.split(key)
    return {
        "hidden": {"kernel": jax.random.normal(first, (64, 128)) / 8, "bias": jnp.zeros(128)},
        "output": {"kernel": jax.random.normal(second, (128, 10)) / 11, "bias": jnp.zeros(10)},
    }


def logits_of(params, images):
    hidden = jax.nn.relu(images @ params["hidden"]["kernel"] + params["hidden"]["bias"])
    return hidden @ params["output"]["kernel"] + params["output"]["bias"]


def loss_of(params, images, labels):
    return optax.softmax_cross_entropy_with_integer_labels(logits_of(params, images), labels).mean() / PASSES


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=32, help="of all ranks together, in one pass")
    args = parser.parse_args()
    hvd.init()
    jax.config.update("jax_cuda_visible_devices", str(hvd.local_rank()))  # a GPU of its own for each process
    tx = hvd.DistributedOptimizer(optax.adam(3e-3), backward_passes_per_step=PASSES)
    params = hvd.broadcast_parameters(new_params(jax.random.key(hvd.rank())), root_rank=0)
    state = hvd.broadcast_optimizer_state(tx.init(params), root_rank=0)

    def step(params, state, images, labels):
        loss, grads = jax.value_and_grad(loss_of)(params, images, labels)
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss

    step = jax.jit(step, donate_argnums=(0, 1))
    images, labels, test_images, test_labels = load_data()
    for epoch in range(args.epochs):
        order, losses = np.random.default_rng(epoch).permutation(len(labels)), []
        for start in range(0, len(order) - args.batch_size + 1, args.batch_size):
            batch = order[start : start + args.batch_size][hvd.rank() :: hvd.size()]
            params, state, loss = step(params, state, images[batch], labels[batch])
            losses.append(PASSES * loss)
        loss = float(hvd.metric_average(sum(losses) / len(losses)))
        accuracy = float((logits_of(params, test_images).argmax(1) == test_labels).mean())
        if hvd.rank() == 0:
            print(f"epoch {epoch:2d}  loss {loss:.4f}  test accuracy {accuracy:.2%}")
    norms = hvd.allgather_object(float(optax.global_norm(params)))
    if hvd.rank() == 0:
        print("RESULT", json.dumps({"loss": loss, "accuracy": accuracy, "equal": len(set(norms)) == 1}))


if __name__ == "__main__":
    main()
