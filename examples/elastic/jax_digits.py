"""Train on scikit-learn's handwritten digits with JAX while ranks die and come (pip install scikit-learn).

    horovodrun -np 2 --min-np 1 python examples/elastic/jax_digits.py

Kill a rank meanwhile, whichever you like: the others go on from the last commit, and another one takes its place.
"""

import argparse
import hashlib
import json

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.datasets import load_digits

import horovod.jax as hvd


def load_data(test_count=360):
    digits = load_digits()
    images, labels = digits.data.astype("float32") / 16, digits.target
    return (images[test_count:], labels[test_count:]), (images[:test_count], labels[:test_count])


def new_params(key):
    first, second = jax.random.split(key)
    return {"hidden": jax.random.normal(first, (64, 128)) / 8, "output": jax.random.normal(second, (128, 10)) / 11}


def logits_of(params, images):
    return jax.nn.relu(images @ params["hidden"]) @ params["output"]


def loss_of(params, images, labels):
    return -jax.nn.log_softmax(logits_of(params, images))[jnp.arange(len(labels)), labels].mean()


def train_step(params, velocity, images, labels, rate):
    _, grads = hvd.value_and_grad(loss_of)(params, images, labels)
    velocity = jax.tree.map(lambda v, g: 0.9 * v + g, velocity, grads)
    return jax.tree.map(lambda p, v: p - rate * v, params, velocity), velocity


train_step = jax.jit(train_step, donate_argnums=(0, 1))  # a commit keeps copies


@hvd.elastic.run
def train(state, data, test, args):
    images, labels = data
    while state.epoch < args.epochs:
        order = np.random.default_rng(state.epoch).permutation(len(labels))
        global_batch = args.batch_size * hvd.size()
        while (state.batch + 1) * global_batch <= len(order):
            batch = order[state.batch * global_batch :][:global_batch][hvd.rank() :: hvd.size()]
            rate = args.lr * hvd.size()
            state.params, state.velocity = train_step(state.params, state.velocity, images[batch], labels[batch], rate)
            state.batch += 1
            if state.batch % args.batches_per_commit == 0:
                state.commit()
        state.epoch, state.batch = state.epoch + 1, 0
        state.commit()
        if hvd.rank() == 0:
            share = (logits_of(state.params, test[0]).argmax(1) == test[1]).mean()
            print(f"epoch {state.epoch}  {hvd.size()} rank(s)  accuracy {share:.2%}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=16, help="of each rank")
    parser.add_argument("--lr", type=float, default=0.01, help="for one rank")
    parser.add_argument("--batches-per-commit", type=int, default=4)
    args = parser.parse_args()
    hvd.init()
    jax.config.update("jax_cuda_visible_devices", str(hvd.local_rank()))  # a GPU of its own for each process
    data, test = load_data()
    params = new_params(jax.random.key(hvd.rank()))  # different on purpose: the state makes the ranks equal
    velocity = jax.tree.map(jnp.zeros_like, params)
    state = hvd.elastic.JaxState(params=params, velocity=velocity, epoch=0, batch=0)
    train(state, data, test, args)
    digest = hashlib.sha256(b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(state.params))).hexdigest()
    equal = len(set(hvd.allgather_object(digest))) == 1
    accuracy = float((logits_of(state.params, test[0]).argmax(1) == test[1]).mean())
    if hvd.rank() == 0:
        print("RESULT", json.dumps({"accuracy": accuracy, "size": hvd.size(), "equal": equal}), flush=True)


if __name__ == "__main__":
    main()
