"""What scripts of TensorFlow 1 use: sessions, wrapped optimizers, accumulation over passes, hooks. Run on every rank;
raises on the first thing that is not so. With the argument "old" without any of TensorFlow 2's behaviour, so that
variables are reference variables unless they say otherwise."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

import horovod.tensorflow as hvd

OLD = "old" in sys.argv
if OLD:
    tf.disable_v2_behavior()
else:
    tf.disable_eager_execution()


def close(got: Any, expected: Any) -> None:
    if not np.allclose(got, expected, rtol=1e-5):
        raise AssertionError(f"rank {hvd.rank()}: got {got}, expected {expected}")


def optimizers() -> None:
    """Gradients are averaged; a local variable's is divided by the number of ranks."""
    mean = (hvd.size() + 1) / 2
    with tf.Graph().as_default(), tf.Session() as session:
        shared = tf.get_variable("shared", initializer=[10.0, 20.0])
        own = tf.get_variable("own", initializer=[5.0])
        optimizer = hvd.DistributedOptimizer(tf.train.GradientDescentOptimizer(1.0))
        optimizer.register_local_var(own)
        step = optimizer.minimize((tf.reduce_sum(shared) + tf.reduce_sum(own)) * (hvd.rank() + 1.0))
        session.run(tf.global_variables_initializer())
        session.run(hvd.broadcast_global_variables(0))
        session.run(step)
        close(session.run(shared), [10 - mean, 20 - mean])
        close(session.run(own), [5 - (hvd.rank() + 1) / hvd.size()])


def accumulation() -> None:
    """Three passes, one reduction: of the sums, or of the averages. A pass is a step, for hooks and decays."""
    mean = (hvd.size() + 1) / 2
    for average in (False, True):
        with tf.Graph().as_default(), tf.Session() as session:
            variable = tf.get_variable("v", initializer=[0.0])
            optimizer = hvd.DistributedOptimizer(
                tf.train.GradientDescentOptimizer(1.0), backward_passes_per_step=3,
                average_aggregated_gradients=average,
            )  # fmt: skip
            done = tf.train.get_or_create_global_step()
            fed = tf.placeholder(tf.float32, [])
            with tf.control_dependencies([tf.identity(fed)]):  # as of the moving averages of a batch
                step = optimizer.minimize(tf.reduce_sum(variable) * (hvd.rank() + 1.0), done)
            session.run(tf.global_variables_initializer())
            expected = 0.0
            for turn in range(1, 7):
                session.run(step, {fed: 0.0})
                if turn % 3 == 0:
                    expected -= mean if average else 3 * mean
                close(session.run(variable), [expected])
                close(session.run(done), turn)


def accumulation_of_two_lists() -> None:
    """Variables that are minimized apart from one another have their passes apart too."""
    with tf.Graph().as_default(), tf.Session() as session:
        variables = [tf.get_variable(name, initializer=[0.0]) for name in "ab"]
        optimizer = hvd.DistributedOptimizer(tf.train.GradientDescentOptimizer(1.0), backward_passes_per_step=2)
        losses = [tf.reduce_sum(variable) * scale for variable, scale in zip(variables, (1.0, 100.0))]
        pairs = [optimizer.compute_gradients(loss, var_list=[v]) for loss, v in zip(losses, variables)]
        steps = [optimizer.apply_gradients(pair) for pair in pairs]
        session.run(tf.global_variables_initializer())
        for expected in (0.0, -2.0, -2.0, -4.0):
            for step in steps:
                session.run(step)
            close(session.run(variables), [[expected], [100 * expected]])


def combined(parts: list[Any]) -> Any:
    """Adasum of as many vectors as a power of two (Maleki et al. 2020)."""
    if len(parts) == 1:
        return parts[0]
    a, b = combined(parts[: len(parts) // 2]), combined(parts[len(parts) // 2 :])
    return (1 - a @ b / (2 * a @ a)) * a + (1 - a @ b / (2 * b @ b)) * b


def adasum() -> None:
    """Every rank steps on its own; what the steps changed is combined after each, or after the last of three."""
    if hvd.size() & (hvd.size() - 1):
        return
    gradients = np.random.default_rng(5).normal(size=(hvd.size(), 3)).astype("float32")
    start = np.array([1.0, 2.0, 3.0])
    for use_resource in (True, False):
        for passes in (1, 3):
            if passes > 1 and not use_resource and not OLD:
                continue  # TensorFlow 2's conditions cannot assign to reference variables
            with tf.Graph().as_default(), tf.Session() as session:
                variable = tf.Variable(start.astype("float32"), use_resource=use_resource)
                optimizer = hvd.DistributedOptimizer(
                    tf.train.GradientDescentOptimizer(0.5), op=hvd.Adasum, backward_passes_per_step=passes
                )
                fed = tf.placeholder(tf.float32, [])
                with tf.control_dependencies([tf.identity(fed)]):
                    step = optimizer.minimize(tf.reduce_sum(variable * gradients[hvd.rank()]))
                session.run(tf.global_variables_initializer())
                for turn in range(1, 2 * passes + 1):
                    session.run(step, {fed: 0.0})
                    steps = -0.5 * gradients
                    done, more = divmod(turn, passes)
                    expected = start + done * combined(list(passes * steps)) + more * steps[hvd.rank()]
                    close(session.run(variable), expected)


def refused() -> None:
    """Arguments that contradict one another."""
    with tf.Graph().as_default():
        plain = tf.train.GradientDescentOptimizer(0.1)
        for options in (
            {"gradient_predivide_factor": 2.0, "op": hvd.Sum},
            {"op": hvd.Adasum, "average_aggregated_gradients": True},
            {"groups": -1},
            {"backward_passes_per_step": 0},
        ):
            try:
                hvd.DistributedOptimizer(plain, **options)
            except ValueError:
                continue
            raise AssertionError(f"{options} was taken")
        try:
            hvd.DistributedOptimizer(object())
        except ValueError:
            return
        raise AssertionError("an object that is no optimizer was wrapped")


def hook() -> None:
    """A monitored session starts with the root's variables."""
    with tf.Graph().as_default():
        variable = tf.get_variable("v", initializer=float(hvd.rank() + 7))
        hooks = [hvd.BroadcastGlobalVariablesHook(hvd.size() - 1)]
        tf.train.get_or_create_global_step()
        with tf.train.MonitoredTrainingSession(hooks=hooks) as session:
            close(session.run(variable), hvd.size() + 6)


def mixed_variables() -> None:
    """A graph with both kinds of variables, as those of old scripts that use a layer, or several passes, are: all of
    them start as the root's, and train."""
    rank = float(hvd.rank())
    with tf.Graph().as_default():
        reference = tf.Variable([rank, 1.0], use_resource=False)
        resource = tf.Variable([rank + 10.0], use_resource=True)
        optimizer = hvd.DistributedOptimizer(tf.train.GradientDescentOptimizer(1.0), backward_passes_per_step=2)
        loss = (tf.reduce_sum(reference) + tf.reduce_sum(resource)) * (rank + 1.0)
        trained = [reference, resource] if OLD else [resource]  # see `adasum`
        step = optimizer.minimize(loss, tf.train.get_or_create_global_step(), trained)
        kinds = {getattr(variable, "handle", None) is None for variable in tf.global_variables()}
        if kinds != {True, False}:
            raise AssertionError(f"variables of one kind only: {tf.global_variables()}")
        root = hvd.size() - 1
        with tf.train.MonitoredTrainingSession(hooks=[hvd.BroadcastGlobalVariablesHook(root)]) as session:
            close(session.run(reference), [root, 1.0])
            close(session.run(resource), [root + 10.0])
            session.run(step)
            session.run(step)
            descent = hvd.size() + 1.0  # two passes with the mean of 1, 2, ...
            close(session.run(resource), [root + 10.0 - descent])
            close(session.run(reference), [root - descent, 1.0 - descent] if OLD else [root, 1.0])


def main() -> None:
    hvd.init()
    for case in (optimizers, accumulation, accumulation_of_two_lists, adasum, refused, hook, mixed_variables):
        case()
        print(f"passed {case.__name__}", flush=True)


if __name__ == "__main__":
    main()
