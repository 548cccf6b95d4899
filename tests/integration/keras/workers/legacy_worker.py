"""Cases of what Keras 2 alone has: optimizers of two generations, `apply_gradients`, loss scales around the optimizer,
files of HDF5 and SavedModel."""

import copy
import functools
import operator
import os
import subprocess
import sys
import tempfile

import numpy as np
import tensorflow as tf
from keras_cases import (
    X,
    arrays,
    assert_close,
    assert_same_everywhere,
    compiled,
    expect_raises,
    fit,
    make_model,
    run_cases,
    tensor,
    variable,
)

import horovod.keras as hvd
import horovod.tensorflow as hvd_tf
from horovod.keras import variables as variables_module
from horovod.keras.installed import keras
from horovod.keras.optimizer import is_distributed

LEGACY = keras.optimizers.legacy
GENERATIONS = (keras.optimizers, LEGACY)
Scaled = keras.mixed_precision.LossScaleOptimizer


def all_variables(model):
    return variables_module.all_variables(model, model.optimizer)


def case_legacy_optimizers_train_as_one_process():
    for make in (lambda: LEGACY.SGD(0.1, momentum=0.9, clipnorm=0.1), lambda: LEGACY.Adam(0.01, decay=0.01)):
        for options in ({}, {"run_eagerly": True}, {"jit_compile": True}):
            model = compiled(hvd.DistributedOptimizer(make()), **options)
            fit(model, epochs=1)
            alone = compiled(make())
            fit(alone, share=False, epochs=1)
            assert_same_everywhere(all_variables(model))
            assert_close(model, alone)
            assert int(model.optimizer.iterations) == 4


def case_legacy_optimizers_have_all_options():
    whole = compiled(LEGACY.SGD(0.1, momentum=0.9))
    fit(whole, share=False)
    for options in (
        {"backward_passes_per_step": 2, "average_aggregated_gradients": True},
        {"groups": 2, "gradient_predivide_factor": 2.0},
    ):
        passes = options.get("backward_passes_per_step", 1)
        optimizer = hvd.PartialDistributedOptimizer(LEGACY.SGD(0.1, momentum=0.9), **options)
        model = compiled(optimizer)
        fit(model, batch=16 // passes)
        assert int(optimizer.iterations) == 8 * passes
        assert_close(model, whole)
    partial = hvd.PartialDistributedOptimizer(LEGACY.SGD(1.0), scale_local_gradients=False)
    own, other = variable([0.0]), variable([0.0])
    partial.register_local_var(own)
    partial.apply_gradients([(tensor([1.0 + hvd.rank()]), own), (tensor([1.0 + hvd.rank()]), other)])
    assert [float(-v.numpy()[0]) for v in (own, other)] == [1.0 + hvd.rank(), (1 + hvd.size()) / 2]


def _step_without_result(optimizer, weight):
    optimizer.apply_gradients([(tf.ones(2) * (1.0 + hvd.rank()), weight)], name="step")


def case_legacy_training_loops_of_ones_own():
    for kinds in GENERATIONS:
        optimizer = hvd.DistributedOptimizer(kinds.SGD(1.0, momentum=0.5))
        weight = variable([0.0, 0.0])
        optimizer.minimize(lambda weight=weight: tf.reduce_sum(weight) * (1.0 + hvd.rank()), [weight])
        average = (1 + hvd.size()) / 2
        np.testing.assert_allclose(weight.numpy(), [-average, -average])
        step = tf.function(_step_without_result)
        step(optimizer, weight)
        np.testing.assert_allclose(weight.numpy(), [-2.5 * average, -2.5 * average])
        assert len(optimizer.variables()) >= 2
        weight.assign([0.0, 0.0])
        plain = hvd.DistributedOptimizer(kinds.SGD(1.0))
        # Reduced before, by the script.
        plain.apply_gradients([(tensor([1.0, hvd.rank()]), weight)], experimental_aggregate_gradients=False)
        np.testing.assert_array_equal(weight.numpy(), [-1.0, -hvd.rank()])
        plain.apply_gradients([])
        hvd.broadcast(0, 0)


def case_legacy_private_names():
    for kinds in GENERATIONS:
        optimizer, weight = hvd.DistributedOptimizer(kinds.SGD(1.0)), variable([1.0])
        assert optimizer._agg_helper is None
        with tf.GradientTape() as tape:
            loss = weight * 2.0 * hvd.rank()
        ((average, of),) = optimizer._compute_gradients(loss, [weight], tape=tape)
        assert of is weight and average.numpy()[0] == hvd.size() - 1
        with tf.GradientTape() as tape:
            loss = weight * 2.0 * hvd.rank()
        ((average, _),) = optimizer._compute_gradients(loss, [weight], grad_loss=tensor([3.0]), tape=tape)
        assert average.numpy()[0] == 3 * (hvd.size() - 1)
        (average,) = optimizer._allreduce([tensor([2.0 * hvd.rank()])], [weight])
        assert average.numpy()[0] == hvd.size() - 1
    passes = hvd.PartialDistributedOptimizer(keras.optimizers.SGD(1.0), backward_passes_per_step=2)._agg_helper
    assert passes.backward_passes_per_step == 2 and passes.allreduce_grads is not None


def case_legacy_state_is_kept_and_copied():
    plain = LEGACY.Adam(0.05)
    model = compiled(plain)
    fit(model, share=False, epochs=1)
    optimizer = hvd.DistributedOptimizer(plain)
    assert int(optimizer.iterations) == 4 and isinstance(optimizer, LEGACY.Adam)
    for one, two in zip(arrays(plain.variables()), arrays(optimizer.variables())):
        np.testing.assert_array_equal(one, two)
    again = copy.deepcopy(optimizer)
    assert is_distributed(again) and int(again.iterations) == 4
    assert again._hvd_reduction is not optimizer._hvd_reduction
    for kinds in GENERATIONS:
        original, weight = hvd.PartialDistributedOptimizer(kinds.SGD(1.0), backward_passes_per_step=2), variable([0.0])
        again = copy.deepcopy(original)
        for expected in (0, -(1 + hvd.size())):
            again.apply_gradients([(tensor([1.0 + hvd.rank()]), weight)])
            assert weight.numpy()[0] == expected
        assert int(again.iterations) == 2 and int(original.iterations) == 0
    assert is_distributed(copy.deepcopy(hvd.DistributedOptimizer(Scaled(keras.optimizers.SGD(1.0)))))
    for plain in (LEGACY.SGD(0.1), Scaled(LEGACY.SGD(0.1)), Scaled(keras.optimizers.SGD(0.1))):
        wrapped = hvd.DistributedOptimizer(plain)
        assert str(wrapped.__class__) == f"<class 'horovod._keras.{type(plain).__name__}'>"
        assert isinstance(wrapped, type(plain)) and keras.optimizers.serialize(wrapped) == (
            keras.optimizers.serialize(plain)
        )
    expect_raises(ValueError, lambda: hvd.DistributedOptimizer(optimizer), "already")


def case_legacy_loss_scale_on_either_side():
    for kinds in GENERATIONS:
        for wrapped in (
            hvd.DistributedOptimizer(Scaled(kinds.SGD(1.0), initial_scale=4.0)),
            Scaled(hvd.DistributedOptimizer(kinds.SGD(1.0)), initial_scale=4.0),
        ):
            weight = variable([0.0])
            wrapped.apply_gradients([(tensor([np.inf if hvd.rank() == 1 else 1.0]), weight)])
            assert weight.numpy()[0] == 0 and float(wrapped.loss_scale) == 2.0
            wrapped.apply_gradients([(tensor([1.0 + hvd.rank()]), weight)])
            assert weight.numpy()[0] == -(1 + hvd.size()) / 2
        several = Scaled(hvd.PartialDistributedOptimizer(kinds.SGD(1.0), backward_passes_per_step=2))
        step = functools.partial(several.apply_gradients, [(tensor([1.0]), variable([0.0]))])
        expect_raises(ValueError, step, "LossScaleOptimizer(optimizer)")


def case_legacy_mixed_float16():
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        for make in (
            lambda: hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)),  # Keras puts a loss scale around it
            lambda: hvd.PartialDistributedOptimizer(Scaled(keras.optimizers.SGD(0.05)), backward_passes_per_step=2),
        ):
            model = compiled(make(), make_model(hvd.rank()))
            assert isinstance(model.optimizer, Scaled)
            history = fit(model, epochs=4, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
            assert history["loss"][-1] < history["loss"][0]
            assert_same_everywhere(all_variables(model))
            assert any("scale" in v.name for v in all_variables(model)), [v.name for v in all_variables(model)]
    finally:
        keras.mixed_precision.set_global_policy("float32")


def case_legacy_optimizers_of_another_keras_are_refused():
    class Other:
        """What an optimizer of Keras 3 is to Keras 2."""

    expect_raises(ValueError, lambda: hvd.DistributedOptimizer(Other()), "TF_USE_LEGACY_KERAS", "Other")


def case_legacy_momentum_correction():
    for kind in (LEGACY.SGD, LEGACY.RMSprop):
        model = compiled(hvd.DistributedOptimizer(kind(0.1, momentum=0.9)))
        fit(model, epochs=1)
        velocities = [model.optimizer.get_slot(v, "momentum") for v in model.trainable_variables]
        before = arrays(velocities)
        schedule = hvd.callbacks.LearningRateScheduleCallback(0.1, lambda epoch: 0.5)
        schedule.set_model(model)
        schedule.on_epoch_begin(0)
        assert abs(float(model.optimizer.lr) - 0.05) < 1e-6
        for one, two in zip(before, arrays(velocities)):
            assert abs(one).max() > 0
            np.testing.assert_allclose(two, 0.5 * one, rtol=1e-5)


RELOAD = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "horovod":
            raise ImportError("horovod is blocked")
sys.meta_path.insert(0, Blocked())
import numpy as np
import {keras} as keras
model = keras.models.load_model(sys.argv[1])
assert type(model.optimizer).__name__ == "Adam", type(model.optimizer)
assert int(model.optimizer.iterations) == int(sys.argv[2])
model.fit(np.zeros((4, 8)), np.zeros(4), verbose=0)
print("RELOADED")
"""


# Keras itself brings no state back from a SavedModel, and cannot open its own format with a legacy optimizer (2.13).
FILES = (
    (keras.optimizers, "model.h5", True),
    (keras.optimizers, "model.keras", True),
    (keras.optimizers, "saved", False),
    (LEGACY, "model.h5", True),
)


def _wrapped(**config):
    return hvd.DistributedOptimizer(LEGACY.Adam(**config), op=hvd.Sum)


def case_legacy_files():
    for kinds, name, with_state in FILES:
        model = compiled(hvd.DistributedOptimizer(kinds.Adam(0.01)))
        fit(model, epochs=1)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, name)
            model.save(path, **({"save_format": "tf"} if name == "saved" else {}))
            if kinds is LEGACY:  # Keras asks for these only there
                wrapped = hvd.load_model(path, custom_objects={"adam": _wrapped})
                assert is_distributed(wrapped.optimizer) and int(wrapped.optimizer.iterations) == 4
                assert wrapped.optimizer._hvd_reduction.settings.options.op == hvd.Sum
            again = hvd.load_model(path, legacy_opts=kinds is LEGACY)
            assert isinstance(again.optimizer, kinds.Adam), type(again.optimizer)
            expect_raises(ValueError, functools.partial(hvd.DistributedOptimizer, again.optimizer), "already")
            variables = all_variables if with_state else operator.attrgetter("variables")
            one, two = (arrays(variables(found)) for found in (model, again))
            assert len(one) == len(two) == (14 if with_state else 4)
            for before, after in zip(one, two):
                np.testing.assert_array_equal(before, after)
            fit(again, epochs=1)
            assert_same_everywhere(all_variables(again))
            done = None
            if hvd.rank() == 0:
                command = [sys.executable, "-c", RELOAD.format(keras=keras.__name__), path, str(4 * with_state)]
                done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            hvd.broadcast(0, 0, name="reloaded")
            assert done is None or "RELOADED" in done.stdout, done.stderr[-3000:]


def case_legacy_elastic_states():
    for kinds in GENERATIONS:
        for kind in (hvd.elastic.KerasState, hvd_tf.elastic.TensorFlowKerasState):
            model = compiled(hvd.DistributedOptimizer(kinds.Adam(0.1)), make_model(hvd.rank()))
            state = kind(model, epoch=hvd.rank())
            state.sync()
            assert state.epoch == 0
            kept = arrays(all_variables(model))
            fit(model, epochs=1)
            state.restore()
            assert len(kept) == len(all_variables(model)) > 12  # Adam's own are among them, before the first step
            for one, two in zip(kept, arrays(all_variables(model))):
                np.testing.assert_array_equal(one, two)


def case_legacy_tape_and_batch_normalization():
    layer, other = hvd_tf.SyncBatchNormalization(name="norm"), keras.layers.Dense(1, use_bias=False)
    share = X[hvd.rank() :: hvd.size()]
    whole = keras.layers.BatchNormalization()
    np.testing.assert_allclose(
        layer(share, training=True), whole(X, training=True)[hvd.rank() :: hvd.size()], atol=1e-4
    )
    other.build((None, 8))
    other.kernel.assign(tf.ones_like(other.kernel))
    with tf.GradientTape() as tape:
        value = tf.reduce_sum(other(tf.fill([1, 8], 1.0 + hvd.rank())))
    tape = hvd_tf.PartialDistributedGradientTape(tape, local_layers=[other], scale_local_gradients=False)
    (gradient,) = tape.gradient(value, other.trainable_variables)
    np.testing.assert_array_equal(gradient, np.full((8, 1), 1.0 + hvd.rank()))
    hvd_tf.broadcast_variables(hvd_tf.DistributedOptimizer(LEGACY.SGD(0.1)).variables(), 0)


if __name__ == "__main__":
    run_cases(globals())
