"""What holds on TensorFlow beside the cases' values: errors, gradients, control flow, tapes, variables, objects.

Each function is one fact, called on every rank with its `Env`; `FACTS` lists them in the order in which all ranks run
them.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import tensorflow as tf
from targets import Env

from horovod._core.errors import InvalidArgumentError, MismatchError
from horovod.tensorflow.collectives.ops import tensorflow_variable


def _function(body: Any) -> Any:
    return tf.function(body, autograph=True)


def mismatch(env: Env) -> None:
    """The ranks disagree: FailedPreconditionError with the same text on all, and all goes on."""
    if env.size == 1:
        return
    rows = 2 + (env.rank == env.size - 1)
    for what, call in (
        ("eager", env.hvd.allreduce),
        ("function", _function(lambda tensor, name: env.hvd.allreduce(tensor, name=name))),
    ):
        text = env.raises(
            what,
            tf.errors.FailedPreconditionError,
            lambda call=call, what=what: call(tf.ones([rows]), name=f"odd.{what}"),
        )
        env.check_true(f"{what}: {text!r}", "Horovod: allreduce" in text and f"rank {env.size - 1} sent" in text)
        env.still_usable(what)


def refusals(env: Env) -> None:
    """What one rank finds wrong fails on all, and is a ValueError there."""
    odd = env.rank == env.size - 1
    for what, tensor in (("dtype", tf.zeros([3], tf.complex64)), ("no number", tf.constant("text"))):
        wrong = tensor if odd else tf.zeros([3])
        kinds: Any = InvalidArgumentError if odd else tf.errors.FailedPreconditionError
        env.raises(what, kinds, lambda wrong=wrong: env.hvd.allreduce(wrong, name="refused"))
        env.still_usable(what)
    for kind in ("allreduce", "allgather", "reducescatter", "alltoall"):
        given = env.target.unfit() if odd else tf.zeros([env.size])
        told = ValueError if odd else tf.errors.FailedPreconditionError
        env.raises(kind, told, lambda kind=kind, given=given: getattr(env.hvd, kind)(given, name="refused"))
    scattered = lambda: env.hvd.reducescatter(tf.zeros([env.size]), op=env.hvd.Adasum, name="refused")  # noqa: E731
    for kind in (RuntimeError, NotImplementedError):
        env.raises("no Adasum", kind, scattered)
    env.raises("op", ValueError, lambda: env.hvd.allreduce(tf.zeros([3]), op=17, name="refused"))
    env.raises("both", ValueError, lambda: env.hvd.allreduce(tf.zeros([3]), True, op=env.hvd.Sum, name="refused"))
    for kind in (ValueError, tf.errors.InvalidArgumentError):
        env.raises("scalar", kind, lambda: env.hvd.allgather(tf.zeros([]), name="refused"))
    env.raises("scalar", ValueError, lambda: env.hvd.allgather(tf.zeros([]), name="refused"))
    env.raises("root", ValueError, lambda: env.hvd.broadcast(tf.zeros([2]), env.size, name="refused"))
    env.raises("splits", tf.errors.OpError, lambda: env.hvd.alltoall(tf.zeros([2]), [5] * env.size, name="refused"))
    env.still_usable("refusals")


def sparse(env: Env) -> None:
    """IndexedSlices are gathered; factors and other operations are refused."""
    slices = tf.IndexedSlices(
        tf.fill([1, 2], env.rank + 1.0), tf.constant([env.rank], tf.int64), tf.constant([9, 2], tf.int64)
    )
    summed = tf.convert_to_tensor(env.hvd.allreduce(slices, op=env.hvd.Sum, name="sparse"))
    expected = np.zeros((9, 2), np.float32)
    for rank in range(env.size):
        expected[rank] = rank + 1
    env.check("sum", summed, expected)
    mean = tf.convert_to_tensor(env.hvd.allreduce(slices, name="sparse"))
    env.check("average", mean, expected / env.size, rtol=1e-6)
    whole = tf.IndexedSlices(tf.constant([3, -3, 1]), tf.constant([0, 1, 1 + env.rank]), tf.constant([env.size + 1]))
    averaged = env.hvd.allreduce(whole, name="whole")
    expected = np.array([3.0, -3.0] + [0.0] * (env.size - 1))
    expected[1 : env.size + 1] = -3.0, *[0.0] * (env.size - 1)
    for rank in range(env.size):
        expected[1 + rank] += 1 / env.size
    env.check_true("the type of TensorFlow's division", averaged.values.dtype == (tf.constant(1) / 2).dtype)
    env.check("sparse integers", tf.convert_to_tensor(averaged), expected, rtol=1e-12)
    env.raises("max", NotImplementedError, lambda: env.hvd.allreduce(slices, op=env.hvd.Max, name="sparse"))
    env.raises("factor", NotImplementedError, lambda: env.hvd.allreduce(slices, prescale_factor=2.0, name="sparse"))
    mixed = env.hvd.grouped_allreduce([tf.ones([2]), slices, tf.ones([1])], op=env.hvd.Sum, name="mixed")
    env.check_true("the order is kept", isinstance(mixed[1], tf.IndexedSlices))
    env.check("dense beside sparse", mixed[0], np.full(2, env.size, np.float32))


def control_flow(env: Env) -> None:
    """Inside tf.cond and loops; iterations of a loop use one name."""

    @tf.function
    def step(tensor: Any, turn: Any) -> Any:
        if turn > 0:
            tensor = env.hvd.allreduce(tensor, op=env.hvd.Sum, name="in.cond")
        total = tf.zeros_like(tensor)
        for i in tf.range(5):
            total += env.hvd.allreduce(tensor * tf.cast(i, tf.float32), op=env.hvd.Sum, name="in.loop")
        return total

    n = env.size
    env.check("cond and loop", step(tf.ones([3]), tf.constant(1)), np.full(3, 10.0 * n * n, np.float32))
    env.check("loop", step(tf.ones([3]), tf.constant(0)), np.full(3, 10.0 * n, np.float32))


def one_name_twice_at_once(env: Env) -> None:
    """Two threads in one function: nothing says which runs belong together, so the second is refused."""
    if env.size == 1:
        return
    step = tf.function(lambda tensor: env.hvd.allreduce(tensor, op=env.hvd.Sum, name="both"))
    results: list[Any] = []
    refused = threading.Event()

    def run() -> None:
        try:
            results.append(np.asarray(step(tf.ones([4]))))
        except tf.errors.InvalidArgumentError as error:
            results.append(str(error))
            refused.set()

    threads = [threading.Thread(target=run, daemon=True) for _ in range(2 if env.rank > 0 else 0)]
    for thread in threads:
        thread.start()  # the first to come has to wait for rank 0
    if env.rank > 0:
        env.check_true("refused", refused.wait(30))
        env.check_true(str(results), "allreduce 'both' runs twice at once" in results.pop())
    env.hvd.allreduce(tf.ones([1]), name="one is refused")
    if env.rank == 0:
        run()
    for thread in threads:
        thread.join(30)
    env.check("the first", results[0], np.full(4, env.size, np.float32))


def unused_results_run(env: Env) -> None:
    """An operation whose result nobody takes runs all the same: the other ranks need it."""

    @tf.function
    def step(tensor: Any) -> Any:
        unused = env.hvd.allreduce(tensor, name="unused")
        if env.rank == 0:
            return tensor
        return unused

    step(tf.ones([4]))
    env.still_usable("unused")


def any_order(env: Env) -> None:
    """Independent operations of a function that the ranks have in different orders."""
    order = np.random.default_rng(env.rank).permutation(24)

    @tf.function
    def step(tensor: Any) -> list[Any]:
        results: dict[int, Any] = {}
        for i in order:
            results[int(i)] = env.hvd.allreduce(tensor * float(i), op=env.hvd.Sum, name=f"order.{i}")
        return [results[i] for i in range(len(order))]

    for _ in range(5):
        for i, result in enumerate(step(tf.ones([3]))):
            env.check(f"tensor {i}", result, np.full(3, float(i * env.size), np.float32))


def places(env: Env) -> None:
    """The operators that answer when they run."""
    hvd = env.hvd
    for jit in (False, True):

        @tf.function(jit_compile=jit)
        def ask() -> Any:
            return hvd.rank_op(), hvd.size_op(), hvd.local_rank_op(), hvd.local_size_op(), hvd.process_set_included_op()

        place = [hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), 1]
        env.check(f"place, jit_compile={jit}", [int(x) for x in ask()], place)
    last = hvd.add_process_set([env.size - 1]) if env.size > 1 else hvd.global_process_set
    number = last.process_set_id
    env.check("size of a set", int(hvd.size_op(number)), 1)
    env.check("included", int(hvd.process_set_included_op(number)), int(env.rank == env.size - 1))
    if env.rank == env.size - 1:
        env.check("within a set", hvd.allreduce(tf.ones([2]), op=hvd.Sum, process_set=last), np.ones(2, np.float32))
    else:
        outside = tf.function(lambda: hvd.allreduce(tf.ones([2]), process_set=last))
        for call in (outside, lambda: hvd.broadcast(tf.ones([2]), env.size - 1, process_set=last)):
            for kind in (tf.errors.InvalidArgumentError, ValueError):
                text = env.raises("outside a set", kind, call)
                env.check_true(f"whose: {text}", f"Rank {env.rank} is not a member of process set {number}" in text)
    with tf.GradientTape() as tape:
        tape.watch(one := tf.constant(env.rank + 1.0))
        value = one * one
    own = hvd.DistributedGradientTape(tape, process_set=last).gradient(value, one)
    env.check("a tape of a set: those outside keep their own", own, np.float32(2.0 * (env.rank + 1)))
    if env.size > 1:
        hvd.remove_process_set(last)
    env.raises("unknown set", tf.errors.InvalidArgumentError, lambda: hvd.size_op(77))


def variables(env: Env) -> None:
    """Broadcast of variables of several types, in place, and of objects."""
    for broadcast in (env.hvd.broadcast_variables, tf.function(env.hvd.broadcast_variables, autograph=False)):
        own = [tf.Variable(tf.cast(tf.fill([2], env.rank), dtype)) for dtype in (tf.float32, tf.int64, tf.bfloat16)]
        broadcast(own, env.size - 1)
        for variable in own:
            env.check(variable.dtype.name, np.asarray(variable).astype(np.int64), np.full(2, env.size - 1, np.int64))
    single = tf.Variable([float(env.rank)])
    env.hvd.broadcast_([single], 0, name="in.place")
    env.check("in place", single, np.zeros(1, np.float32))
    env.raises("eager", RuntimeError, lambda: env.hvd.broadcast_global_variables(0))
    env.check("object", env.hvd.broadcast_object({"rank": env.rank}, 0), {"rank": 0})
    env.check("function", env.hvd.broadcast_object_fn(env.size - 1)([env.rank]), [env.size - 1])
    env.check("objects", env.hvd.allgather_object(env.rank), list(range(env.size)))


def different_variables(env: Env) -> None:
    """One rank has not made all its variables, or gives something else: told on all ranks, not waited for."""
    if env.size == 1:
        return
    own = [tf.Variable(1.0)] * (1 + env.rank)
    text = env.raises("count", MismatchError, lambda: env.hvd.broadcast_variables(own, 0))
    env.check_true(text, "rank 0 has 1, rank 1 has 2" in text)
    env.still_usable("counts")
    given = tf.keras.Sequential() if env.rank == 1 else own
    text = env.raises(
        "kind", ValueError if env.rank == 1 else MismatchError, lambda: env.hvd.broadcast_variables(given, 0)
    )
    env.check_true(text, "Received: Sequential" in text and (env.rank == 1 or "rank 1 refused: " in text))
    env.still_usable("kinds")


def wrong_arguments(env: Env) -> None:
    """What cannot work is refused where it is written, before anything is sent."""
    hvd = env.hvd
    variable = tf.Variable([1.0, 2.0])
    for wrong in (tf.keras.Sequential(), variable, [np.ones(2)], {"w": variable}, "w"):
        env.raises(str(type(wrong)), ValueError, lambda wrong=wrong: hvd.broadcast_variables(wrong, 0))
    plain = tf.compat.v1.train.GradientDescentOptimizer(0.1)
    env.raises("twice", ValueError, lambda: hvd.DistributedOptimizer(hvd.DistributedOptimizer(plain)))
    env.raises("no tape", ValueError, lambda: hvd.DistributedGradientTape(plain))
    env.raises("groups", ValueError, lambda: hvd.DistributedGradientTape(tf.GradientTape(), groups=[variable]))


def keras_optimizer(env: Env) -> None:
    """A Keras optimizer goes to the Keras wrapper, whatever the arguments."""
    variable = tf.Variable([1.0, 2.0])
    optimizer = env.hvd.DistributedOptimizer(tf.keras.optimizers.SGD(1.0), op=env.hvd.Sum, groups=[[variable]])
    optimizer.apply_gradients([(tf.ones([2]), variable)])
    env.check("applied", variable, np.array([1.0, 2.0], np.float32) - env.size)
    env.raises("adasum", ValueError, lambda: env.hvd.DistributedOptimizer(tf.keras.optimizers.SGD(), op=env.hvd.Adasum))
    env.raises("no optimizer", ValueError, lambda: env.hvd.DistributedOptimizer(3))


def partial_tape(env: Env) -> None:
    """The layers given keep their own gradients."""
    first, second = tf.keras.layers.Dense(2, use_bias=False), tf.keras.layers.Dense(1, use_bias=False)
    first.build([1, 2])
    second.build([1, 2])
    for layer in (first, second):
        layer.kernel.assign(tf.ones_like(layer.kernel))
    with tf.GradientTape() as tape:
        value = tf.reduce_sum(second(first(tf.fill([1, 2], env.rank + 1.0))))
    tape = env.hvd.PartialDistributedGradientTape(tape, local_layers=first, scale_local_gradients=False)
    weights = [layer.trainable_weights[0] for layer in (first, second)]
    gradients_of = tape.gradient(value, [tensorflow_variable(weight) for weight in weights])
    env.check("local", gradients_of[0], np.full((2, 2), env.rank + 1.0, np.float32))
    env.check("global", gradients_of[1], np.full((2, 1), env.size + 1.0, np.float32), rtol=1e-6)
    env.raises("no layer", ValueError, lambda: env.hvd.PartialDistributedGradientTape(tape, local_layers=[3]))


def sync_batch_norm(env: Env) -> None:
    """Statistics and gradients are those of all batches as one."""
    data = np.random.default_rng(5).normal(2.0, 3.0, (4 * env.size, 3)).astype(np.float32)
    mine = tf.constant(data[env.rank * 4 : env.rank * 4 + 4])
    if env.rank == 0:
        env.hvd.SyncBatchNormalization()  # of a model that only this rank has: Keras numbers the next one differently
    synced, plain = env.hvd.SyncBatchNormalization(), tf.keras.layers.BatchNormalization()
    expected = np.asarray(plain(tf.constant(data), training=True))[env.rank * 4 : env.rank * 4 + 4]
    env.check("forward", synced(mine, training=True), expected, rtol=1e-4)
    env.check("moving variance", np.asarray(synced.moving_variance), np.asarray(plain.moving_variance), rtol=1e-5)
    in_graph = tf.function(lambda values: synced(values, training=True))
    env.check("in a graph", in_graph(mine), expected, rtol=1e-4)
    weight = np.random.default_rng(6).normal(size=data.shape).astype(np.float32)

    def gradient(layer: Any, values: Any, weights: Any) -> Any:
        values = tf.constant(values)
        with tf.GradientTape() as tape:
            tape.watch(values)
            total = tf.reduce_sum(layer(values, training=True) * weights)
        return np.asarray(tape.gradient(total, values))

    part = slice(env.rank * 4, env.rank * 4 + 4)
    env.check("gradient", gradient(synced, data[part], weight[part]), gradient(plain, data, weight)[part], rtol=1e-3)
    env.raises("fused", ValueError, lambda: env.hvd.SyncBatchNormalization(fused=True))


def joins(env: Env) -> None:
    """A rank without data takes part with zeros; the last to join is told to all."""
    for step in range(env.rank + 1):
        total = env.hvd.allreduce(tf.ones([2]), op=env.hvd.Sum, name=f"join.{step}")
        env.check(f"step {step}", total, np.full(2, env.size - step, np.float32))
    env.check("the last", int(env.hvd.join()), env.size - 1)


def compiled(env: Env) -> None:
    """Inside XLA: many operations one after the other, gradients, a tape, errors, what must be known then."""
    hvd, n, rank = env.hvd, env.size, env.rank
    weights = [tf.Variable(tf.ones([i + 1])) for i in range(6)]

    @tf.function(jit_compile=True)
    def step(scale: Any) -> Any:
        with tf.GradientTape() as tape:
            value = sum(tf.reduce_sum(hvd.allreduce(w * scale, op=hvd.Sum)) for w in weights) * (rank + 1.0)
        plain = tape.gradient(value, weights)
        with tf.GradientTape() as tape:
            value = sum(tf.reduce_sum(w) for w in weights) * scale * (rank + 1.0)
        return plain, hvd.DistributedGradientTape(tape).gradient(value, weights)

    for _ in range(5):
        through, reduced = step(tf.constant(2.0))
        for i in range(6):
            env.check("through an allreduce", through[i], np.full(i + 1, n * (n + 1.0), np.float32))
            env.check("tape", reduced[i], np.full(i + 1, n + 1.0, np.float32), rtol=1e-6)

    @tf.function(jit_compile=True)
    def gathered(tensor: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(tensor)
            value = tf.reduce_sum(hvd.allgather(tensor, name="same.rows") * (rank + 1.0))
            value += tf.reduce_sum(hvd.reducescatter(tensor, op=hvd.Sum) * 0.0 + hvd.alltoall(tensor)[:1] * 0.0)
        return tape.gradient(value, tensor)

    env.check("through the others", gathered(tf.ones([n, 1])), np.full((n, 1), (n + 1) / 2, np.float32), rtol=1e-6)
    env.raises("unknown", NotImplementedError, lambda: tf.function(
        lambda t: hvd.alltoall(t, [1] * n), jit_compile=True, autograph=False)(tf.ones([n])))  # fmt: skip
    if n > 1:
        odd = tf.function(lambda t: hvd.allreduce(t, name="odd"), jit_compile=True)
        text = env.raises("mismatch", tf.errors.OpError, lambda: odd(tf.ones([2 + (rank == n - 1)])))
        env.check_true(text, "Horovod MismatchError: allreduce 'odd'" in text)
        rows = tf.function(lambda t: hvd.allgather(t, name="rows"), jit_compile=True)
        text = env.raises("rows", tf.errors.OpError, lambda: rows(tf.ones([2 + (rank == n - 1)])))
        env.check_true(text, "first dimensions differ" in text)
    env.still_usable("compiled")


def mistakes_are_not_retried(env: Env) -> None:
    """The elastic loop tells a mistake from a lost rank, inside XLA too, where both are InternalError."""
    if env.size == 1:
        return
    state = env.hvd.elastic.TensorFlowState([tf.Variable(1.0)], epoch=0)
    rows = 2 + (env.rank == env.size - 1)
    for jit, expected in ((False, tf.errors.FailedPreconditionError), (True, MismatchError)):
        attempts: list[int] = []
        body = tf.function(lambda jit=jit: env.hvd.allreduce(tf.ones([rows]), name=f"mistake.{jit}"), jit_compile=jit)

        def train(_: Any, attempts: list[int] = attempts, body: Any = body) -> Any:
            attempts.append(1)
            assert len(attempts) < 3
            return body()

        env.raises(f"jit_compile={jit}", expected, lambda train=train: env.hvd.elastic.run(train)(state))
        env.check_true(f"{len(attempts)} attempts", len(attempts) == 1)
    env.still_usable("elastic")


FACTS = (
    mismatch,
    refusals,
    sparse,
    control_flow,
    one_name_twice_at_once,
    unused_results_run,
    any_order,
    places,
    variables,
    different_variables,
    wrong_arguments,
    keras_optimizer,
    partial_tape,
    sync_batch_norm,
    compiled,
    mistakes_are_not_retried,
    joins,
)
