"""Operators that a script has placed on a GPU, with placement that yields to nothing: a stand-in that TensorFlow plugs
in (tests/native/frameworks/tensorflow/fake), whose memory the host cannot read. Run on two ranks; raises on the first
thing that is not so."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import load_library

load_library.load_pluggable_device_library(os.environ["HVD_TEST_TENSORFLOW_GPU"])
tf.config.set_soft_device_placement(False)

import horovod.tensorflow as hvd  # noqa: E402

GPU = "/GPU:0"


def close(got: Any, expected: Any) -> None:
    if not np.allclose(got, expected):
        raise AssertionError(f"rank {hvd.rank()}: got {got}, expected {expected}")


def there(values: Any, dtype: Any = tf.float32) -> Any:
    """A tensor in the GPU's memory; but of int32 TensorFlow has it in the host's."""
    with tf.device(GPU):
        tensor = tf.identity(tf.constant(values, dtype))
    assert "GPU:0" in tensor.backing_device or dtype is tf.int32, tensor.backing_device
    return tensor


def computed_there() -> None:
    """Results of the GPU's kernels go in, and theirs take what comes out: eager, in functions, with gradients."""

    def through(tensor: Any) -> Any:
        with tf.device(GPU):
            return -hvd.allreduce(-tensor, op=hvd.Sum, name="through")

    def slope(tensor: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(tensor)
            result = through(tensor)
        with tf.device(GPU):
            return result, tape.gradient(result, tensor, output_gradients=tensor)

    own = [hvd.rank() + 1.0, 10.0]
    for call in (slope, tf.function(slope)):
        result, gradient = call(there(own))
        assert "GPU:0" in result.backing_device
        close(result, [3.0, 20.0])
        close(gradient, [3.0, 20.0])


def lists() -> None:
    """Of several types, integers among them, which TensorFlow keeps elsewhere than the others."""
    mixed = [there([1.0, 2.0]), there([3, 4], tf.int32), there([True], tf.bool), there([5], tf.int64)]
    kinds = [tensor.dtype for tensor in mixed]

    def gathered(tensors: Any) -> Any:
        with tf.device(GPU):
            return hvd.grouped_allgather(tensors, name="lists")

    for call in (gathered, tf.function(gathered)):
        results = call(mixed)
        assert [tensor.dtype for tensor in results] == kinds
        for result, wanted in zip(results, ([1, 2, 1, 2], [3, 4, 3, 4], [True, True], [5, 5])):
            close(result, wanted)


def numbers() -> None:
    """What answers numbers, and what takes them."""

    def asked() -> Any:
        with tf.device(GPU):
            places = [hvd.rank_op(), hvd.size_op(), hvd.local_rank_op(), hvd.local_size_op()]
            return [*places, hvd.process_set_included_op()]

    for call in (asked, tf.function(asked)):
        close([int(x) for x in call()], [hvd.rank(), 2, hvd.local_rank(), 2, 1])
    with tf.device(GPU):
        rows, received = hvd.alltoall(there([0.0, 1.0, 2.0]), [1, 2], name="splits")
    close(received, [hvd.rank() + 1] * 2)
    close(rows, [0, 0] if hvd.rank() == 0 else [1, 2, 1, 2])


def session() -> None:
    """A graph of TensorFlow 1."""
    with tf.Graph().as_default():
        fed = tf.compat.v1.placeholder(tf.float32, [2])
        with tf.device(GPU):
            total = hvd.allreduce(-fed, op=hvd.Sum)
        assert total.device.endswith("GPU:0"), total.device
        with tf.compat.v1.Session(config=tf.compat.v1.ConfigProto(allow_soft_placement=False)) as s:
            close(s.run(total, {fed: [1.0, hvd.rank()]}), [-2.0, -1.0])


def failures() -> None:
    """Are told, and the next operation works."""
    try:
        with tf.device(GPU):
            hvd.allreduce(there([1.0] * (hvd.rank() + 1)), name="odd")
    except tf.errors.FailedPreconditionError as error:
        assert "odd" in str(error), error
    else:
        raise AssertionError("shapes that differ were taken")
    computed_there()


def without_cuda() -> None:
    """XLA can hold collectives for the CPU and for CUDA, and says so here."""
    with tf.device(GPU):
        compiled = tf.function(lambda t: hvd.allreduce(t, name="compiled"), jit_compile=True)
    try:
        with tf.device(GPU):
            compiled(there([1.0]))
    except NotImplementedError as error:
        assert "Leave jit_compile off" in str(error), error
    else:
        raise AssertionError("a function for a GPU without CUDA was taken")
    with tf.device("/CPU:0"):
        on_cpu = tf.function(lambda t: hvd.allreduce(t, op=hvd.Sum, name="on_cpu"), jit_compile=True)
        close(on_cpu(tf.constant([1.0])), [2.0])


def join() -> None:
    with tf.device(GPU):
        last = int(hvd.join())
    assert last in (0, 1), last


if __name__ == "__main__":
    hvd.init()
    for part in (computed_there, lists, numbers, session, failures, without_cuda, join):
        part()
        print("passed", part.__name__)
    hvd.shutdown()
