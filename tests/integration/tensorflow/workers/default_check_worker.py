"""Cases in which nobody has asked for a check of parameters: what differs is told all the same, in eager mode and in
functions."""

import time
import warnings

import numpy as np
import tensorflow as tf
from jobs.case_runner import expect_raises, run_cases

import horovod.tensorflow as hvd
from horovod._core.errors import MismatchError
from horovod._core.training import reduction_check
from horovod.tensorflow.gradients import default_check

ERRORS = (MismatchError, tf.errors.OpError)  # the latter from inside a graph
WAYS = {"eager": lambda step: step, "function": tf.function}


def told(run):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run()
    return [str(each.message) for each in caught if "of an optimizer" in str(each.message)]


def variables(label, *starts):
    return [tf.Variable(np.full(2 + i, start, np.float32), name=f"{label}_{i}") for i, start in enumerate(starts)]


def stepping(own, wrap, data=None, used=None):
    """A step of descent on variables."""
    scale = float(1 + hvd.rank()) if data is None else data
    used = own if used is None else used

    def step():
        with tf.GradientTape() as tape:
            loss = tf.add_n([tf.reduce_sum(each * each) * scale for each in used])
        gradients = hvd.DistributedGradientTape(tape).gradient(loss, own)
        for each, gradient in zip(own, gradients):
            if gradient is not None:
                each.assign_sub(0.1 * gradient)

    return wrap(step)


def repeated(step, times=10):
    def run():
        for _ in range(times):
            step()

    return run


def told_of(*runs):
    return [text for run in runs for text in told(run)]


def broadcasting(step, own):
    """Steps with the broadcast after the first, as public programs have it."""

    def run():
        step()
        hvd.broadcast_variables(own, root_rank=0)
        repeated(step)()

    return run


def case_a_forgotten_broadcast_is_told_once():
    for label, wrap in WAYS.items():
        own = variables(f"forgotten_{label}", 1.0, 2.0 + hvd.rank())
        texts = told(repeated(stepping(own, wrap)))
        assert len(texts) == (hvd.rank() == 0), texts
        for text in texts:
            words = f"1 of 2 parameters differ between the ranks: 'forgotten_{label}_1' of rank 1 differs from rank 0's"
            assert words in text and "hvd.broadcast_variables(model.variables, root_rank=0)" in text, text


def case_what_is_right_is_silent():
    for label, wrap in WAYS.items():
        own = variables(f"right_{label}", 1.0 + hvd.rank(), 2.0)
        hvd.broadcast_variables(own, root_rank=0)
        assert told(repeated(stepping(own, wrap))) == []


def case_a_broadcast_after_the_first_step_is_silent():
    for label, wrap in WAYS.items():
        own = variables(f"late_{label}", 1.0 + hvd.rank(), 2.0)
        assert told(broadcasting(stepping(own, wrap), own)) == []


def case_a_broadcast_in_the_first_call_is_silent():
    """As TensorFlow 2's examples have it: the function is traced once with it and once without."""
    own = variables("first", 1.0 + hvd.rank(), 2.0)
    step = stepping(own, lambda step: step)

    @tf.function
    def training_step(first_batch):
        step()
        if first_batch:
            hvd.broadcast_variables(own, root_rank=0)

    assert told(lambda: [training_step(batch == 0) for batch in range(10)]) == []


def case_a_broadcast_after_several_reductions_is_silent():
    """The program adds up several of the gradients before it applies them."""
    own = variables("gathered", 1.0 + hvd.rank())

    @tf.function
    def gradient():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(own[0] * own[0])
        return hvd.DistributedGradientTape(tape).gradient(loss, own)[0]

    def run():
        for step in range(4):
            own[0].assign_sub(0.1 * tf.add_n([gradient() for _ in range(4)]))
            if step == 0:
                hvd.broadcast_variables(own, root_rank=0)

    assert told(run) == []


def case_another_number_of_gradients_fails():
    for label, wrap in WAYS.items():
        own = variables(f"number_{label}", *[1.0] * (2 + 2 * hvd.rank()))
        words = f"Rank 1 has 4 parameters, rank 0 has 2: only rank 1 has '2.number_{label}_2', '3.number_{label}_3'."
        expect_raises(ERRORS, stepping(own, wrap), words)


def case_another_shape_fails():
    for label, wrap in WAYS.items():
        own = [tf.Variable(tf.ones([3 + hvd.rank()]), name=f"shape_{label}")]
        words = f"'0.shape_{label}' is float32 [4] on rank 1 and float32 [3] on rank 0"
        expect_raises(ERRORS, stepping(own, wrap), words)


def case_two_lists_in_turns_are_silent():
    for label, wrap in WAYS.items():
        one, other = variables(f"one_{label}", 1.0), variables(f"other_{label}", 1.0, 2.0)
        first, second = stepping(one, wrap), stepping(other, wrap)

        def both(first=first, second=second):
            first()
            second()

        assert told_of(repeated(both), repeated(wrap(both))) == []


def case_many_steps_in_one_call():
    for name, start, warnings_of in (("same", 1.0, 0), ("other", 1.0 + hvd.rank(), hvd.rank() == 0)):
        step = stepping(variables(f"loop_{name}", start), lambda step: step)

        @tf.function
        def steps(step=step):
            for _ in tf.range(12):
                step()

        assert len(told(steps)) == warnings_of


def case_local_sources_may_differ():
    own = variables("local", 1.0, 2.0 + hvd.rank())

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = tf.add_n([tf.reduce_sum(each * each) for each in own])
        tape = hvd.DistributedGradientTape(tape)
        tape.register_local_source(own[1])
        for each, gradient in zip(own, tape.gradient(loss, own)):
            each.assign_sub(0.1 * gradient)

    assert told(repeated(step)) == []


def case_variables_without_gradients_may_differ():
    for label, wrap in WAYS.items():
        own = variables(f"unused_{label}", 1.0, 2.0 + hvd.rank())
        assert told(repeated(stepping(own, wrap, used=own[:1]))) == []

        def zero(own=own):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(own[0] * own[0])
            tape = hvd.DistributedGradientTape(tape)
            gradients = tape.gradient(loss, own, unconnected_gradients=tf.UnconnectedGradients.ZERO)
            for each, gradient in zip(own, gradients):
                each.assign_sub(0.1 * gradient)

        assert told(repeated(wrap(zero))) == []


def case_one_rank_traces_again():
    own = variables("traced", 1.0)

    @tf.function
    def step(data):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(own[0]) * tf.reduce_mean(data)
        own[0].assign_sub(0.1 * hvd.DistributedGradientTape(tape).gradient(loss, own)[0])

    def run():
        for i in range(14):
            step(tf.ones([1 + i * hvd.rank()]))

    assert told(run) == []
    assert step.experimental_get_tracing_count() == (14 if hvd.rank() else 1)


def case_one_function_is_called_twice_in_another():
    own = variables("inner", 1.0, 2.0)

    @tf.function
    def gradients(scale):
        with tf.GradientTape() as tape:
            loss = tf.add_n([tf.reduce_sum(each * each) for each in own]) * scale
        return hvd.DistributedGradientTape(tape).gradient(loss, own)

    @tf.function
    def step():
        for each, one, other in zip(own, gradients(tf.constant(1.0)), gradients(tf.constant(2.0))):
            each.assign_sub(0.1 * (one + other))

    assert told(repeated(step)) == []


def case_functions_that_run_in_any_order_are_silent():
    """Both have the same names, and TensorFlow orders them on no rank."""
    lists = variables("same", 1.0), variables("same", 3.0, 2.0)

    def gradients_of(own):
        @tf.function
        def gradients(delay):
            if delay:
                tf.py_function(lambda: time.sleep(0.02), [], [])
            with tf.GradientTape() as tape:
                loss = tf.add_n([tf.reduce_sum(each * each) for each in own])
            return hvd.DistributedGradientTape(tape).gradient(loss, own)

        return gradients

    functions = [gradients_of(own) for own in lists]

    @tf.function
    def step():
        for rank, (own, function) in enumerate(zip(lists, functions)):
            for each, gradient in zip(own, function(rank == hvd.rank())):
                each.assign_sub(0.1 * gradient)

    assert told(repeated(step)) == []


def case_later_steps_compare_nothing():
    step = stepping(variables("later", 1.0), tf.function)
    repeated(step)()
    (((_, key), check),) = reduction_check._checks.items()
    with tf.device("CPU:0"):
        assert check.is_over and not tf.raw_ops.VarIsInitializedOp(resource=default_check._resource(key))


def case_ranks_with_fewer_steps_join():
    """The last: afterwards nothing is compared."""
    for label, wrap in WAYS.items():
        step = stepping(variables(f"joined_{label}", 1.0), wrap)
        assert told(repeated(step, 2 + 3 * hvd.rank())) == []
        hvd.join()
        assert told(repeated(step, 4)) == []


def case_zero_switches_it_off():
    """Run by itself, with --check-parameters 0."""
    for label, wrap in WAYS.items():
        assert told(repeated(stepping(variables(f"off_{label}", 1.0 + hvd.rank()), wrap))) == []
    assert not reduction_check._checks


run_cases(globals(), hvd, before_each=reduction_check._checks.clear)
