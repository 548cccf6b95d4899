"""One rank dies in the middle of a function; the others must get AbortedError, soon."""

from __future__ import annotations

import os
import signal
import time

import tensorflow as tf

import horovod.tensorflow as hvd


def main() -> None:
    hvd.init()

    @tf.function
    def step(tensor: tf.Tensor) -> tf.Tensor:
        return hvd.allreduce(tensor, name="t") + hvd.allreduce(tensor * 2, name="u")

    for _ in range(5):
        step(tf.ones([1000]))
    if hvd.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    start = time.monotonic()
    try:
        while True:
            step(tf.ones([1000]))
    except tf.errors.AbortedError as error:
        print(
            f"rank {hvd.rank()} got AbortedError after {time.monotonic() - start:.1f} s: {str(error).splitlines()}",
            flush=True,
        )


if __name__ == "__main__":
    main()
