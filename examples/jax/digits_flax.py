"""Train a small network of flax (nnx) on scikit-learn's handwritten digits, with an optimizer of optax.

    python examples/jax/digits_flax.py                     one process
    horovodrun -np 2 python examples/jax/digits_flax.py    two, same global batch

Needs flax 0.11 or later, which installs optax, and scikit-learn.
"""

import argparse
import hashlib
import json

import jax
import numpy as np
import optax
from flax import nnx
from sklearn.datasets import load_digits

import horovod.jax as hvd


class Network(nnx.Module):
    def __init__(self, rngs):
        self.hidden = nnx.Linear(64, 128, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, rngs=rngs)
        self.output = nnx.Linear(128, 10, rngs=rngs)

    def __call__(self, images):
        return self.output(self.dropout(nnx.relu(self.hidden(images))))


def load_data():
    digits = load_digits()
    order = np.random.default_rng(1).permutation(len(digits.target))
    images, labels = digits.data[order].astype("float32") / 16, digits.target[order]
    return images[360:], labels[360:], images[:360], labels[:360]


def loss_of(model, images, labels):
    return optax.softmax_cross_entropy_with_integer_labels(model(images), labels).mean()


@nnx.jit
def train_step(model, optimizer, images, labels):
    loss, grads = nnx.value_and_grad(loss_of)(model, images, labels)
    optimizer.update(model, grads)  # the ranks' gradients are averaged here
    return loss


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=64, help="of all ranks together")
    args = parser.parse_args()
    hvd.init()
    jax.config.update("jax_cuda_visible_devices", str(hvd.local_rank()))  # a GPU of its own for each process
    model = Network(nnx.Rngs(params=0, dropout=hvd.rank()))  # other masks on each rank
    nnx.update(model, hvd.broadcast_parameters(nnx.state(model, nnx.Param), root_rank=0))
    optimizer = nnx.Optimizer(model, hvd.DistributedOptimizer(optax.adam(3e-3)), wrt=nnx.Param)
    images, labels, test_images, test_labels = load_data()
    for epoch in range(args.epochs):
        model.train()
        order, losses = np.random.default_rng(epoch).permutation(len(labels)), []
        for start in range(0, len(order) - args.batch_size + 1, args.batch_size):
            batch = order[start : start + args.batch_size][hvd.rank() :: hvd.size()]
            losses.append(train_step(model, optimizer, images[batch], labels[batch]))
        loss = float(hvd.metric_average(sum(losses) / len(losses)))
        model.eval()
        accuracy = float((model(test_images).argmax(1) == test_labels).mean())
        if hvd.rank() == 0:
            print(f"epoch {epoch:2d}  loss {loss:.4f}  test accuracy {accuracy:.2%}")
    leaves = jax.tree.leaves(nnx.state(model, nnx.Param))
    digest = hashlib.sha256(b"".join(np.asarray(leaf).tobytes() for leaf in leaves)).hexdigest()
    equal = len(set(hvd.allgather_object(digest))) == 1
    if hvd.rank() == 0:
        print("RESULT", json.dumps({"loss": loss, "accuracy": accuracy, "equal": equal}))


if __name__ == "__main__":
    main()
