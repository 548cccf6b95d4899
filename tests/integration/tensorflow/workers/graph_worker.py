"""What scripts of TensorFlow 1 use: sessions, wrapped optimizers, accumulation over passes, hooks. Run on every rank;
raises on the first thing that is not so."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

import horovod.tensorflow as hvd

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
    """Three passes, one reduction: of the sums, or of the averages."""
    mean = (hvd.size() + 1) / 2
    for average in (False, True):
        with tf.Graph().as_default(), tf.Session() as session:
            variable = tf.get_variable("v", initializer=[0.0])
            optimizer = hvd.DistributedOptimizer(
                tf.train.GradientDescentOptimizer(1.0), backward_passes_per_step=3,
                average_aggregated_gradients=average,
            )  # fmt: skip
            step = optimizer.minimize(tf.reduce_sum(variable) * (hvd.rank() + 1.0))
            session.run(tf.global_variables_initializer())
            expected = 0.0
            for turn in range(1, 7):
                session.run(step)
                if turn % 3 == 0:
                    expected -= mean if average else 3 * mean
                close(session.run(variable), [expected])


def adasum() -> None:
    """Equal steps of all ranks combine to that step."""
    if hvd.size() & (hvd.size() - 1):
        return
    with tf.Graph().as_default(), tf.Session() as session:
        variable = tf.get_variable("v", initializer=[1.0, 2.0])
        optimizer = hvd.DistributedOptimizer(tf.train.GradientDescentOptimizer(0.5), op=hvd.Adasum)
        step = optimizer.minimize(tf.reduce_sum(variable * variable))
        session.run(tf.global_variables_initializer())
        session.run(step)
        close(session.run(variable), [0.0, 0.0])


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


def main() -> None:
    hvd.init()
    for case in (optimizers, accumulation, adasum, refused, hook):
        case()
        print(f"passed {case.__name__}", flush=True)


if __name__ == "__main__":
    main()
