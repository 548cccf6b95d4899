"""160 tensors a step, in an order of its own on every rank: `random_order_worker.py STEPS`. No deadlock, equal sums."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import tensorflow as tf

import horovod.tensorflow as hvd

TENSORS = 160


def main() -> None:
    hvd.init()
    steps = int(sys.argv[1])
    order = np.random.default_rng(hvd.rank() + 1).permutation(TENSORS)

    @tf.function
    def step(scale: Any) -> list[Any]:
        results: dict[int, Any] = {}
        for i in order:
            own = tf.fill([int(i) * 7 + 1], tf.cast(int(i) + hvd.rank(), tf.float32)) * scale
            results[int(i)] = hvd.allreduce(own, op=hvd.Sum, name=f"tensor.{i}")
        return [results[i][:1] for i in range(TENSORS)]

    n = hvd.size()
    for number in range(steps):
        sums = np.concatenate([np.asarray(tensor) for tensor in step(tf.constant(float(number)))])
        expected = np.array([(n * i + n * (n - 1) / 2) * number for i in range(TENSORS)], np.float32)
        if not np.array_equal(sums, expected):
            raise AssertionError(f"step {number}: {sums} is not {expected}")
    print(f"passed {steps} steps of {TENSORS} tensors on {n} ranks", flush=True)


if __name__ == "__main__":
    main()
