"""Cases of gradients that pass two places which could reduce them: they are reduced once, which op=Sum shows, and never
left as they are, which op=Average shows."""

import functools
import gc
import itertools

import numpy as np
import tensorflow as tf
from keras_cases import KERAS_2, arrays, assert_close, compiled, fit, make_model, run_cases, variable

import horovod.keras as hvd
import horovod.tensorflow as hvd_tf
from horovod.keras.installed import keras

KINDS = (keras.optimizers, keras.optimizers.legacy) if KERAS_2 else (keras.optimizers,)
Scaled = keras.mixed_precision.LossScaleOptimizer if KERAS_2 else keras.optimizers.LossScaleOptimizer


def total():
    """What the gradients 1 + rank add up to."""
    return hvd.size() * (hvd.size() + 1) / 2


def mean():
    return total() / hvd.size()


def summing(kinds=keras.optimizers, **options):
    return hvd.PartialDistributedOptimizer(kinds.SGD(1.0), op=hvd.Sum, **options)


def averaging(kinds=keras.optimizers, **options):
    return hvd.PartialDistributedOptimizer(kinds.SGD(1.0), **options)


def gradients_of(weights, distributed=True, **options):
    """Those of this rank are 1 + rank; distributed, they are summed."""
    with tf.GradientTape() as tape:
        loss = sum(tf.reduce_sum(tf.convert_to_tensor(weight)) for weight in weights) * (1.0 + hvd.rank())
    if distributed:
        tape = hvd_tf.PartialDistributedGradientTape(tape, op=hvd.Sum, **options)
    return tape.gradient(loss, weights)


def clipped(gradients):
    return tf.clip_by_global_norm(gradients, 1000.0)[0]


def as_they_are(gradients):
    return gradients


def taken(weight):
    """How far the weight has gone, from zero, against the gradient; it starts again."""
    (value,) = arrays([weight])
    weight.assign(np.zeros(value.shape, "float32"))
    assert (value == value.ravel()[0]).all()
    return -float(value.ravel()[0])


def whole_step(process):
    def step(optimizer, weight, distributed=True):
        apply(optimizer, process(gradients_of([weight], distributed)), [weight])

    return step


def build(optimizer, weights):
    """Keras 3 cannot make variables in a function."""
    if not KERAS_2:
        optimizer.build(weights)


def apply(optimizer, gradients, weights):
    """Without a result, which `tf.cond` and `tf.function` would want to pass on."""
    optimizer.apply_gradients(zip(gradients, weights))


def computing(optimizer):
    """How the optimizer's generation calls it."""
    return optimizer.compute_gradients if hasattr(optimizer, "compute_gradients") else optimizer._compute_gradients


def minimize(optimizer, weight):
    optimizer.minimize(lambda: tf.reduce_sum(weight) * (1.0 + hvd.rank()), [weight])


def traced(function, *arguments):
    return tf.function(functools.partial(function, *arguments))


def case_tensorflow_tape_and_optimizer_reduce_once():
    for kinds, process in itertools.product(KINDS, (as_they_are, clipped)):
        optimizer, weight = summing(kinds), variable(np.zeros(2))
        build(optimizer, [weight])
        eager = whole_step(process)
        graph = traced(eager, optimizer, weight)
        for _ in range(2):
            eager(optimizer, weight)
            assert taken(weight) == total(), (kinds, process)
            graph()
            assert taken(weight) == total(), (kinds, process)
        # The same optimizer and weight without a distributed tape.
        eager(optimizer, weight, distributed=False)
        assert taken(weight) == total()
        traced(eager, optimizer, weight, False)()
        assert taken(weight) == total()


def case_tensorflow_gradients_leave_the_function_that_reduced_them():
    optimizer, weight = summing(), variable(np.zeros(2))
    build(optimizer, [weight])
    compute = tf.function(lambda: clipped(gradients_of([weight])))
    apply_there = tf.function(lambda gradients: apply(optimizer, gradients, [weight]))
    for _ in range(2):
        apply(optimizer, compute(), [weight])
        assert taken(weight) == total()
        apply_there(compute())
        assert taken(weight) == total()
    # What a function has applied itself says nothing about what comes from elsewhere.
    other, once = variable(np.zeros(2)), summing()
    build(once, [other])
    step = whole_step(as_they_are)
    traced(step, once, other)()
    assert taken(other) == total()
    step(once, other, distributed=False)
    assert taken(other) == total()


def case_tensorflow_every_way_through_two_branches():
    optimizer, weight = summing(), variable(np.zeros(2))
    build(optimizer, [weight])

    @tf.function
    def step(half):
        gradients = gradients_of([weight])
        tf.cond(
            half,
            lambda: apply(optimizer, [0.5 * gradients[0]], [weight]),
            lambda: apply(optimizer, gradients, [weight]),
        )

    for half, expected in ((True, total() / 2), (False, total())):
        step(tf.constant(half))
        assert taken(weight) == expected


def case_tensorflow_two_steps_of_one_function():
    optimizer, weight = summing(), variable(np.zeros(2))
    build(optimizer, [weight])

    @tf.function
    def steps():
        apply(optimizer, gradients_of([weight]), [weight])
        apply(optimizer, gradients_of([weight], distributed=False), [weight])

    steps()
    assert taken(weight) == 2 * total()


def case_tensorflow_what_a_plain_optimizer_has_applied_is_no_excuse():
    for kinds in KINDS:
        plain, optimizer, weight = kinds.SGD(1.0), averaging(kinds), variable(np.zeros(2))
        build(plain, [weight])
        build(optimizer, [weight])
        step = whole_step(as_they_are)
        traced(step, plain, weight)()
        assert taken(weight) == total()
        for _ in range(2):
            step(optimizer, weight, distributed=False)
            assert taken(weight) == mean(), kinds


def case_tensorflow_ranks_need_not_trace_alike():
    optimizer, weight = averaging(), variable(np.zeros(2))
    build(optimizer, [weight])
    compute = tf.function(lambda: gradients_of([weight]))
    if hvd.rank() == 0:
        compute.get_concrete_function()
    tf.function(lambda: apply(optimizer, compute(), [weight]))()
    assert taken(weight) == total()


def case_tensorflow_garbage_decides_nothing():
    optimizer, weight = summing(), variable(np.zeros(2))
    build(optimizer, [weight])
    gradients = tf.function(lambda: gradients_of([weight]))()
    gc.collect()
    apply(optimizer, gradients, [weight])
    assert taken(weight) == total()


def case_tensorflow_local_gradients_stay_local():
    for kinds, distributed in itertools.product(KINDS, (summing, averaging)):
        layer = keras.layers.Dense(1, use_bias=False)
        layer.build((None, 2))
        layer.kernel.assign(np.zeros((2, 1)))
        shared, optimizer = variable(np.zeros(2)), distributed(kinds)
        weights = [layer.kernel, shared]
        build(optimizer, weights)
        for scale, own in ((False, 1.0 + hvd.rank()), (True, (1.0 + hvd.rank()) / hvd.size())):
            gradients = gradients_of(weights, local_layers=[layer], scale_local_gradients=scale)
            apply(optimizer, clipped(gradients), weights)
            assert [taken(weight) for weight in weights] == [own, total()]


def case_tensorflow_one_tape_of_two_is_distributed():
    optimizer, first, second = summing(), variable(np.zeros(2)), variable(np.zeros(3))
    build(optimizer, [first, second])
    optimizer.apply_gradients([(gradients_of([first])[0], first), (gradients_of([second], False)[0], second)])
    assert [taken(first), taken(second)] == [total(), total()]


def case_tensorflow_passes_of_a_distributed_tape():
    for kinds in KINDS:
        optimizer, weight = summing(kinds, backward_passes_per_step=2), variable(np.zeros(2))
        for expected in (0, 2 * total()):
            apply(optimizer, gradients_of([weight]), [weight])
            assert taken(weight) == expected


def case_tensorflow_an_interrupted_step_leaves_nothing_to_a_new_optimizer():
    weight = variable(np.zeros(2))
    gradients_of([weight])
    gradients = gradients_of([weight], distributed=False)
    gradients_of([weight])
    apply(summing(), gradients, [weight])
    assert taken(weight) == total()


def case_tensorflow_custom_training_step():
    class Model(keras.Model):
        """Its step has a distributed tape."""

        def __init__(self):
            super().__init__()
            self.inner = make_model()

        def call(self, inputs, training=False):
            return self.inner(inputs)

        def train_step(self, data):
            inputs, labels = data
            with tf.GradientTape() as tape:
                loss = self.compute_loss(y=labels, y_pred=self(inputs, training=True))
            tape = hvd_tf.DistributedGradientTape(tape, op=hvd.Sum)
            gradients = clipped(tape.gradient(loss, self.trainable_variables))
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
            return {"loss": loss}

    alone = compiled(keras.optimizers.SGD(0.1))
    fit(alone, share=False)
    for options in ({}, {"run_eagerly": True}):
        sgd = keras.optimizers.SGD(0.1 / hvd.size())
        model = compiled(hvd.DistributedOptimizer(sgd, op=hvd.Sum), Model(), **options)
        fit(model)
        assert_close(model.inner, alone)


def case_legacy_compute_gradients_reduces():
    for kinds in KINDS:
        optimizer, weight = summing(kinds), variable(np.zeros(2))
        compute = computing(optimizer)

        def loss(weight=weight):
            return tf.reduce_sum(weight) * (1.0 + hvd.rank())

        for skip in ({}, {"experimental_aggregate_gradients": False}):
            pairs = compute(loss, [weight])
            assert float(pairs[0][0][0]) == total()
            optimizer.apply_gradients([(0.5 * pairs[0][0], weight)], **skip)
            assert taken(weight) == total() / 2
        optimizer.minimize(loss, [weight])
        assert taken(weight) == total()
        # A distributed tape under it.
        with tf.GradientTape() as tape:
            value = loss()
        optimizer.minimize(value, [weight], tape=hvd_tf.DistributedGradientTape(tape, op=hvd.Sum))
        assert taken(weight) == total()
        # Computed for a look, never applied; then a distributed tape.
        compute(loss, [weight])
        apply(optimizer, gradients_of([weight]), [weight])
        assert taken(weight) == total()


def case_legacy_computed_for_a_look_then_a_plain_tape():
    for kinds, passes in itertools.product(KINDS, (1, 2)):
        optimizer, weight = averaging(kinds, backward_passes_per_step=passes), variable(np.zeros(2))
        for _ in range(passes):
            computing(optimizer)(lambda weight=weight: tf.reduce_sum(weight) * (1.0 + hvd.rank()), [weight])
            apply(optimizer, gradients_of([weight], distributed=False), [weight])
        assert taken(weight) == mean(), (kinds, passes)


def case_legacy_minimize_reduces_in_one_place():
    for kinds, distributed in itertools.product(KINDS, (summing, averaging)):
        optimizer, weight = distributed(kinds), variable(np.zeros(2))
        minimize(optimizer, weight)
        assert taken(weight) == (mean() if distributed is averaging else total())
        graph = traced(minimize, optimizer, weight).get_concrete_function().graph
        assert len([node for node in graph.get_operations() if node.type.startswith("Horovod")]) == 1, kinds


def case_legacy_every_trace_reduces():
    for kinds, jit_compile in itertools.product(KINDS, (None, True)):
        optimizer, weight = summing(kinds), variable(np.zeros(2))

        # What makes variables is traced twice, here in one trace of what is around it.
        inner = tf.function(functools.partial(minimize, optimizer, weight), jit_compile=jit_compile)

        def outer(inner=inner):
            inner()  # not returned: it is an operation in TensorFlow 2.13

        traced(outer)()
        assert taken(weight) == total(), kinds


def case_legacy_compute_gradients_counts_passes():
    skips = ({}, {"experimental_aggregate_gradients": False})
    for kinds, skip, distributed in itertools.product(KINDS, skips, (summing, averaging)):
        optimizer, weight = distributed(kinds, backward_passes_per_step=2), variable(np.zeros(2))
        whole = 2 * (mean() if distributed is averaging else total())
        for expected in (0, whole, 0, whole):
            pairs = computing(optimizer)(lambda weight=weight: tf.reduce_sum(weight) * (1.0 + hvd.rank()), [weight])
            optimizer.apply_gradients([(1.0 * gradient, weight) for gradient, weight in pairs], **skip)
            assert taken(weight) == expected, (kinds, skip)
        assert int(optimizer.iterations) == 4


def case_legacy_loss_scale_around_what_computes():
    for kinds in KINDS:
        for wrapped in (
            hvd.DistributedOptimizer(Scaled(kinds.SGD(1.0), initial_scale=4.0), op=hvd.Sum),
            Scaled(hvd.DistributedOptimizer(kinds.SGD(1.0), op=hvd.Sum), initial_scale=4.0),
        ):
            weight = variable(np.zeros(2))
            for factor, expected in ((np.inf if hvd.rank() == 1 else 1.0, 0.0), (1.0 + hvd.rank(), total())):
                wrapped.minimize(lambda weight=weight, factor=factor: tf.reduce_sum(weight * factor), [weight])
                assert taken(weight) == expected, (kinds, wrapped)


if __name__ == "__main__":
    run_cases(globals())
