"""TensorFlow's tensors that stay on a GPU outside XLA: a stand-in that TensorFlow plugs in, over the fake CUDA driver
and the fake NCCL, whose streams work late. The helper in HOME was built for it. Run on two ranks; raises on the first
thing that is not so."""

from __future__ import annotations

import ctypes
import json
import os
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import load_library

load_library.load_pluggable_device_library(os.environ["HVD_TEST_TENSORFLOW_GPU"])
tf.config.set_soft_device_placement(False)

import horovod.tensorflow as hvd  # noqa: E402
from horovod._core.life import engine_start  # noqa: E402
from horovod.tensorflow.collectives import library  # noqa: E402
from horovod.tensorflow.gpu import device_memory  # noqa: E402

GPU = "/GPU:0"
WAY = os.environ["HVD_TEST_WAY"]


def carried() -> dict[str, int]:
    """The batches of each backend."""
    return {backend["name"]: backend["batches"] for backend in json.loads(engine_start.describe() or "")["backends"]}


def close(got: Any, expected: Any) -> None:
    if not np.allclose(got, expected):
        raise AssertionError(f"rank {hvd.rank()}: got {got}, expected {expected}")


def negated(values: Any) -> Any:
    """A tensor that a kernel of the GPU makes late."""
    with tf.device(GPU):
        return -tf.constant(values, tf.float32)


def sums() -> None:
    """Eager, in functions, with gradients; memory that is let go of at once is not used again too early."""

    def through(tensor: Any) -> Any:
        with tf.device(GPU):
            return -hvd.allreduce(-tensor, op=hvd.Sum, name="through")

    def slope(tensor: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(tensor)
            result = through(tensor)
        with tf.device(GPU):
            return result, tape.gradient(result, tensor, output_gradients=tensor)

    for call in (slope, tf.function(slope)):
        for step in range(10):
            values = np.full(1000, hvd.rank() + step, np.float32)
            result, gradient = call(negated(values))
            close(result, -(2.0 * step + 1))
            close(gradient, -(2.0 * step + 1))


def groups() -> None:
    """Many tensors as one operator, and one after the other in a function whose operators are all under way."""

    def many(tensors: Any) -> Any:
        with tf.device(GPU):
            single = [hvd.allreduce(-tensor, op=hvd.Sum, name=f"n{i}") for i, tensor in enumerate(tensors)]
            return single, hvd.grouped_allreduce([-tensor for tensor in tensors], op=hvd.Average, name="group")

    for call in (many, tf.function(many)):
        tensors = [negated(np.full(10 * i + 1, i + hvd.rank(), np.float32)) for i in range(20)]
        single, group = call(tensors)
        for i in range(20):
            close(single[i], 2 * i + 1)
            close(group[i], i + 0.5)


def broadcasts() -> None:
    with tf.device(GPU):
        close(hvd.broadcast(negated([hvd.rank() + 1.0]), 1, name="from 1"), [-2.0])
        variable = tf.Variable(negated([[hvd.rank() + 1.0] * 3] * 2))
    hvd.broadcast_variables([variable], root_rank=0)
    close(variable, [[-1.0] * 3] * 2)


def elsewhere() -> None:
    """What still goes through the host's memory: other operations, integers of 32 bits, mixed lists."""
    before = carried()
    with tf.device(GPU):
        close(hvd.allgather(negated([hvd.rank()]), name="gathered"), [0.0, -1.0])
        close(hvd.allreduce(tf.constant([hvd.rank() + 1]), op=hvd.Sum, name="integers"), [3])
        mixed = hvd.grouped_allreduce([negated([1.0]), tf.constant([1])], op=hvd.Sum, name="mixed")
    close(mixed[0], [-2.0])
    close(mixed[1], [2])
    assert carried()[WAY] == before[WAY], (before, carried())


def failures() -> None:
    """Are told, and the next operation works."""
    try:
        with tf.device(GPU):
            hvd.allreduce(negated([1.0] * (hvd.rank() + 1)), name="odd")
    except tf.errors.FailedPreconditionError as error:
        assert "odd" in str(error), error
    else:
        raise AssertionError("shapes that differ were taken")
    sums()


def faults() -> str:
    """What the fake driver has seen that is wrong."""
    driver = ctypes.CDLL(os.environ["HVD_TEST_CUDA_LIBRARY"])
    text = ctypes.create_string_buffer(500)
    driver.fake_cuda_say(text, 500)
    return text.value.decode() if driver.fake_cuda_faults() else ""


if __name__ == "__main__":
    hvd.init()
    library.loaded()
    problem = device_memory.take(hvd.local_rank())
    assert problem == "", problem
    for part in (sums, groups, broadcasts, elsewhere, failures):
        before = carried()[WAY]
        part()
        assert faults() == "", faults()
        assert carried()[WAY] > before or part is elsewhere, (part.__name__, carried())
        print("passed", part.__name__)
    hvd.shutdown()
