"""Six large layers, whose weights are called layer0_weight to layer5_weight: a backward pass, then a step."""

from __future__ import annotations

import time

import mxnet as mx
from mxnet import autograd, gluon, nd

import horovod.mxnet as hvd

WIDTH = 1200

hvd.init()
net = gluon.nn.Sequential()
for number in range(6):
    net.add(gluon.nn.Dense(WIDTH, in_units=WIDTH, use_bias=False, prefix=f"layer{number}_"))
net.initialize(mx.init.Normal(0.01))
params = net.collect_params()
x = nd.random.normal(shape=(256, WIDTH))
seconds = 0.0
for step in range(2):
    with autograd.record():
        loss = (net(x) ** 2).mean()
    loss.wait_to_read()
    hvd.allgather_object(step)  # the ranks begin together: a span begins with the first rank that asks
    begin = time.perf_counter()
    loss.backward()
    if step == 0:
        for parameter in params.values():
            parameter.grad().wait_to_read()
        seconds = time.perf_counter() - begin
    else:
        hvd.DistributedTrainer(params, "sgd", {"learning_rate": 0.1}).step(1)
if hvd.rank() == 0:
    print(f"BACKWARD {seconds:.6f}")
