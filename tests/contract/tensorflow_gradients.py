"""The gradients of TensorFlow's operations, each in four ways: with an eager tape, a tape inside a `tf.function`, a
tape around one, and in a graph of TensorFlow 1. The last two leave out what no result needs, so that a collective of
which one rank drops the result would be waited for by the others.

Each function is one fact, called on every rank with its `Env`; `FACTS` lists them in the order in which all ranks run
them.
"""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import tensorflow as tf
from targets import Env

Call = Callable[[Any], Any]


def _eager(call: Call, tensor: Any, weight: float) -> Any:
    tensor = tf.constant(tensor)
    with tf.GradientTape() as tape:
        tape.watch(tensor)
        value = tf.reduce_sum(call(tensor) * weight)
    return np.asarray(tf.convert_to_tensor(tape.gradient(value, tensor)))


def _tape_inside(call: Call, tensor: Any, weight: float, **options: Any) -> Any:
    @tf.function(autograph=False, **options)
    def body(tensor: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(tensor)
            value = tf.reduce_sum(call(tensor) * weight)
        return tf.convert_to_tensor(tape.gradient(value, tensor))

    return np.asarray(body(tf.constant(tensor)))


def _tape_around(call: Call, tensor: Any, weight: float) -> Any:
    return _eager(tf.function(call, autograph=False), tensor, weight)


def _graph(call: Call, tensor: Any, weight: float) -> Any:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        fed = tf.compat.v1.placeholder(tensor.dtype, tensor.shape)
        (gradient,) = tf.gradients(tf.reduce_sum(call(fed) * weight), fed)
        return session.run(tf.convert_to_tensor(gradient), {fed: tensor})


WAYS: dict[str, Callable[[Call, Any, float], Any]] = {
    "eager": _eager,
    "tape inside": _tape_inside,
    "tape around": _tape_around,
    "graph": _graph,
}


def _check(env: Env, what: str, call: Call, tensor: Any, expected: Any) -> None:
    """In all ways, of the sum of the result times this rank's number, from 1 on."""
    tensor, expected = np.asarray(tensor, np.float32), np.asarray(expected, np.float32)
    for way, gradient_of in WAYS.items():
        env.check(f"{what}, {way}", gradient_of(call, tensor, env.rank + 1.0), expected, rtol=1e-6)


def of_allreduce(env: Env) -> None:
    """Sums, averages, factors, extrema."""
    hvd, n, rank = env.hvd, env.size, env.rank
    total = n * (n + 1) / 2
    own = np.full((2, 2), rank + 1.0)
    _check(env, "sum", lambda t: hvd.allreduce(t, op=hvd.Sum, name="g"), own, np.full((2, 2), total))
    _check(env, "average", lambda t: hvd.allreduce(t, name="g"), own, np.full((2, 2), total / n))
    scaled = {"op": hvd.Sum, "prescale_factor": 0.5, "postscale_factor": 4.0}
    _check(env, "factors", lambda t: hvd.allreduce(t, name="g", **scaled), own, np.full((2, 2), 2 * total))
    won = np.full((2, 2), total if rank == n - 1 else 0)
    _check(env, "max", lambda t: hvd.allreduce(t, op=hvd.Max, name="g"), own, won)
    scaled["op"] = hvd.Max
    _check(env, "max, factors", lambda t: hvd.allreduce(t, name="g", **scaled), own, 2 * won)
    scaled.update(op=hvd.Min, prescale_factor=-0.3)
    _check(env, "min of the negative", lambda t: hvd.allreduce(t, name="g", **scaled), own, -1.2 * won)
    first = [rank == 0, 1]
    _check(env, "max of equal values", lambda t: hvd.allreduce(t, op=hvd.Max, name="g"), first,
           [total if rank == 0 else 0, total / n])  # fmt: skip
    env.raises("a product has none", (NotImplementedError, LookupError), lambda: _eager(
        lambda t: hvd.allreduce(t, op=hvd.Product, name="g"), own, 1.0))  # fmt: skip


def of_allgather(env: Env) -> None:
    """Every rank gets the mean of the gradients of its rows, as many as it had, which may be none."""
    n, rank = env.size, env.rank
    mean = (n + 1) / 2
    for rows in (rank + 1, rank):
        _check(env, f"{rows} rows", lambda t: env.hvd.allgather(t, name="g"), np.ones((rows, 2)),
               np.full((rows, 2), mean))  # fmt: skip


def of_broadcast(env: Env) -> None:
    """The root gets the mean, the others zeros; all of them take part in the reduction."""
    n, rank = env.size, env.rank
    for root in (0, n - 1):
        expected = np.full((2, 2), (n + 1) / 2 if rank == root else 0)
        _check(env, f"root {root}", lambda t, root=root: env.hvd.broadcast(t, root, name="g"), np.ones((2, 2)),
               expected)  # fmt: skip


def of_alltoall(env: Env) -> None:
    """Rows go back to where they came from, also where the ranks sent differently many without saying so."""
    n, rank = env.size, env.rank
    back = np.repeat(np.arange(1.0, n + 1), rank + 1)[:, None] * np.ones((1, 2))
    _check(env, "equal parts", lambda t: env.hvd.alltoall(t, name="g"), np.ones((n * (rank + 1), 2)), back)
    sent = [[i + 1.0] * 2 if i < n else [0.0] * 2 for i in range(n + 1)]
    _check(env, "splits", lambda t: env.hvd.alltoall(t, [1] * n, name="g")[0], np.ones((n + 1, 2)), sent)


def of_reducescatter(env: Env) -> None:
    """The blocks of all ranks."""
    n = env.size
    blocks = np.repeat(np.arange(1.0, n + 1), 2)[:, None] * np.ones((1, 2))
    _check(env, "average", lambda t: env.hvd.reducescatter(t, name="g"), np.ones((2 * n, 2)), blocks)
    _check(env, "sum", lambda t: env.hvd.reducescatter(t, op=env.hvd.Sum, name="g"), np.ones((2 * n, 2)), blocks * n)


def of_rows_taken_out(env: Env) -> None:
    """What is looked up in a result has sparse gradients, which are reduced as dense ones."""
    hvd, n = env.hvd, env.size
    mean = (n + 1) / 2
    expected = np.array([[0, 0], [2, 2], [0, 0]], np.float32) * mean

    def taken(operation: Any) -> Call:
        return lambda t: tf.gather(operation(t), [1, 1])

    _check(env, "allreduce", taken(lambda t: hvd.allreduce(t, name="g")), np.ones((3, 2)), expected)
    root = expected if env.rank == 0 else 0 * expected
    _check(env, "broadcast", taken(lambda t: hvd.broadcast(t, 0, name="g")), np.ones((3, 2)), root)
    _check(env, "allgather", taken(lambda t: hvd.allgather(t, name="g")), np.ones((3, 2)), root)


def of_one_of_a_group(env: Env) -> None:
    """A group is reduced as one, whichever of its results are used."""
    n = env.size

    def first(tensor: Any) -> Any:
        return env.hvd.grouped_allreduce([tensor, 2 * tensor], name="g")[env.rank % 2]

    expected = sum((other + 1.0) * (1 + other % 2) for other in range(n)) / n
    _check(env, "of a group", first, np.ones(2), np.full(2, expected))


def inside_conditions(env: Env) -> None:
    """The branch of a condition is a graph of its own."""

    def call(tensor: Any) -> Any:
        return tf.cond(tf.reduce_sum(tensor) > 0, lambda: env.hvd.broadcast(tensor, 0, name="g"), lambda: tensor)

    _check(env, "cond", call, np.ones(2), np.full(2, (env.size + 1) / 2 if env.rank == 0 else 0))


def around_compiled_functions(env: Env) -> None:
    """A tape around a function that XLA compiles."""
    call = tf.function(lambda t: env.hvd.broadcast(t, 0, name="g"), jit_compile=True)
    expected = np.full(2, (env.size + 1) / 2 if env.rank == 0 else 0, np.float32)
    env.check("compiled", _eager(call, np.ones(2, np.float32), env.rank + 1.0), expected)


FACTS = (
    of_allreduce,
    of_allgather,
    of_broadcast,
    of_alltoall,
    of_reducescatter,
    of_rows_taken_out,
    of_one_of_a_group,
    inside_conditions,
    around_compiled_functions,
)
