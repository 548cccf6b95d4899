"""Operators that stand for many gradients: the names of these, ranks that gather others, late ranks, two tapes, a loop;
`gathered_worker.py`, with one thread of TensorFlow's for operators."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import tensorflow as tf

import horovod.tensorflow as hvd
from horovod.tensorflow.gradients import gathered

SHAPES = [[3, 2], [2], [40_000], [2, 2], [7]]


def variables(number: int = 0) -> list[Any]:
    return [tf.Variable(tf.ones(shape), name=f"v{number}_{i}/kernel") for i, shape in enumerate(SHAPES)]


def gradients_of(owned: list[Any], scale: Any, **arguments: Any) -> list[Any]:
    """`scale` times the place of the variable, counted from 1."""
    with tf.GradientTape() as tape:
        loss = tf.add_n([tf.reduce_sum(v) * float(i + 1) for i, v in enumerate(owned)]) * scale
    gradients: list[Any] = hvd.DistributedGradientTape(tape, **arguments).gradient(loss, owned)
    return gradients


def expect(gradients: list[Any], mean: float) -> None:
    for i, gradient in enumerate(gradients):
        np.testing.assert_allclose(gradient, np.full(SHAPES[i], mean * (i + 1), np.float32), rtol=1e-6)


def mean_of(values: list[float]) -> float:
    return sum(values) / len(values)


def operators_of(function: Any, *arguments: Any) -> list[Any]:
    graph = function.get_concrete_function(*arguments).graph
    return [operation for operation in graph.get_operations() if operation.type == "HorovodAllreduce"]


def test_one_operator_has_the_names_that_many_have() -> None:
    owned = variables()
    ours = operators_of(tf.function(lambda scale: gradients_of(owned, scale)), tf.constant(1.0))
    gathered._may_gather, kept = lambda: False, gathered._may_gather
    try:
        plain = operators_of(tf.function(lambda scale: gradients_of(owned, scale)), tf.constant(1.0))
    finally:
        gathered._may_gather = kept
    names = []
    for operation in ours:
        path = operation.name.rpartition("/")[0]
        given = operation.get_attr("tensor_names")
        names += [f"{path}/{name.decode()}" for name in given] or [operation.name]
    assert len(ours) < len(plain) == len(SHAPES)
    assert sorted(names) == sorted(operation.name for operation in plain), names


def train_where_rank_0_gathers_none(overlaps: bool) -> None:
    owned = variables()
    gathered.overlap_can_pay, kept = lambda _: overlaps, gathered.overlap_can_pay
    gathered._may_gather, may = lambda: hvd.rank() > 0, gathered._may_gather
    try:
        step = tf.function(lambda scale: gradients_of(owned, scale))
        for k in range(5):
            expect(step(tf.constant(float(hvd.rank() + k))), mean_of([r + k for r in range(hvd.size())]))
    finally:
        gathered.overlap_can_pay, gathered._may_gather = kept, may


def test_ranks_may_gather_others() -> None:
    for overlaps in (True, False):
        train_where_rank_0_gathers_none(overlaps)


def test_late_ranks() -> None:
    owned = variables()
    step = tf.function(lambda scale: gradients_of(owned, scale, compression=hvd.Compression.fp16))
    for k in range(6):
        if k % hvd.size() == hvd.rank():
            time.sleep(0.05)
        expect(step(tf.constant(float(hvd.rank() + k))), mean_of([r + k for r in range(hvd.size())]))


def test_two_tapes_whose_order_differs() -> None:
    both = [variables(1), variables(2)]

    @tf.function
    def step(scale: Any) -> list[Any]:
        return [gradients_of(owned, scale + float(i)) for i, owned in enumerate(both)]

    begin = time.monotonic()
    for k in range(50):
        for i, found in enumerate(step(tf.constant(float(hvd.rank() + k)))):
            expect(found, mean_of([r + k + i for r in range(hvd.size())]))
    assert time.monotonic() - begin < 30


def test_iterations_of_a_loop() -> None:
    owned = variables()

    @tf.function
    def steps(scale: Any) -> list[Any]:
        sums = [tf.zeros(shape) for shape in SHAPES]
        for k in tf.range(4):
            gradients = gradients_of(owned, scale + tf.cast(k, tf.float32))
            sums = [total + gradient for total, gradient in zip(sums, gradients)]
        return sums

    expect(steps(tf.constant(float(hvd.rank()))), 4 * mean_of([r + 1.5 for r in range(hvd.size())]))


def test_an_error_names_the_gradient() -> None:
    owned = variables()
    owned[3] = tf.Variable(tf.ones([2 + hvd.rank(), 2]), name="odd/kernel")
    step = tf.function(lambda scale: gradients_of(owned, scale, op=hvd.Adasum))  # not compared before
    try:
        step(tf.constant(1.0))
    except tf.errors.FailedPreconditionError as error:
        assert "odd/kernel_3" in str(error), error
    else:
        raise AssertionError("shapes that differ were reduced")


def main() -> None:
    tf.config.threading.set_inter_op_parallelism_threads(1)
    hvd.init()
    for name, test in list(globals().items()):
        if name.startswith("test_") and (hvd.size() == 2 or "error" not in name):
            test()
            print(f"passed {name}", flush=True)


if __name__ == "__main__":
    main()
