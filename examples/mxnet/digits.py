"""A small network on scikit-learn's digits with gluon: `horovodrun -np 2 python examples/mxnet/digits.py`.

What Horovod needs is marked by comments. Prints the accuracy on the test images, which are the same for all ranks.
"""

from __future__ import annotations

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from sklearn.datasets import load_digits

import horovod.mxnet as hvd

BATCH = 32
EPOCHS = 8


def data() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Images and labels to train on, and to test with."""
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    images, labels = (digits.data[order] / 16).astype("float32"), digits.target[order].astype("float32")
    return images[:1440], labels[:1440], images[1440:], labels[1440:]


def main() -> None:
    """Trains and tests."""
    hvd.init()  # 1: start Horovod
    mx.random.seed(hvd.rank())
    images, labels, test_images, test_labels = data()
    images, labels = images[hvd.rank() :: hvd.size()], labels[hvd.rank() :: hvd.size()]  # 2: this rank's share

    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(64, activation="relu"), gluon.nn.Dense(10))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    params = net.collect_params()
    hvd.broadcast_parameters(params, root_rank=0)  # 3: equal parameters, also of layers that get their shape later
    rate = 0.05 * hvd.size()  # 4: as many times the batch
    trainer = hvd.DistributedTrainer(params, "sgd", {"learning_rate": rate, "momentum": 0.9})  # 5: mean gradients

    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    steps = 1440 // hvd.size() // BATCH  # equal on all ranks
    for epoch in range(EPOCHS):
        order = np.random.default_rng([epoch, hvd.rank()]).permutation(len(labels))
        for step in range(steps):
            rows = order[step * BATCH : (step + 1) * BATCH]
            with autograd.record():
                loss = loss_of(net(mx.nd.array(images[rows])), mx.nd.array(labels[rows]))
            loss.backward()
            trainer.step(BATCH)

    predicted = net(mx.nd.array(test_images)).asnumpy().argmax(1)
    accuracy = hvd.allreduce(mx.nd.array([float(np.mean(predicted == test_labels))]), name="accuracy").asscalar()
    if hvd.rank() == 0:  # 6: one rank speaks
        print(f"accuracy on {len(test_labels)} test images: {accuracy:.3f} ({hvd.size()} ranks)")


if __name__ == "__main__":
    main()
