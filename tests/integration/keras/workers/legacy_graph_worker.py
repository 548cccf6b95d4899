"""Cases of Keras 2 in a graph of TensorFlow 1, where its callbacks act through Keras' session."""

import numpy as np
import tensorflow as tf

tf.compat.v1.disable_eager_execution()

from keras_cases import arrays, assert_close, assert_same_everywhere, compiled, expect_raises, fit, run_cases  # noqa: E402

import horovod.keras as hvd  # noqa: E402
from horovod._core.operations.objects import broadcast_object  # noqa: E402
from horovod.keras import variables  # noqa: E402
from horovod.keras.installed import keras  # noqa: E402

LEGACY = keras.optimizers.legacy


def make_model(shift=0.0):
    model = keras.Sequential([keras.layers.Dense(3, input_shape=(8,))])
    model.set_weights([np.arange(24.0).reshape(8, 3) / 24 + shift, np.zeros(3)])
    return model


def case_legacy_fit():
    warm_up = hvd.callbacks.LearningRateWarmupCallback(0.1, warmup_epochs=1, steps_per_epoch=4)
    model = compiled(hvd.DistributedOptimizer(LEGACY.SGD(0.1, momentum=0.9)), make_model())
    history = fit(model, callbacks=[hvd.callbacks.MetricAverageCallback(), warm_up])
    warm_up = hvd.callbacks.LearningRateWarmupCallback(0.1, warmup_epochs=1, steps_per_epoch=4)
    alone = compiled(LEGACY.SGD(0.1, momentum=0.9), make_model())
    expected = fit(alone, share=False, callbacks=[warm_up])
    assert_same_everywhere(variables.all_variables(model, model.optimizer))
    assert_close(model, alone)
    np.testing.assert_allclose(history["loss"], expected["loss"], atol=1e-5)
    before = arrays(variables.velocities(model.optimizer))
    schedule = hvd.callbacks.LearningRateScheduleCallback(0.1, lambda epoch: 0.5)
    schedule.set_model(model)
    schedule.on_epoch_begin(0)
    for one, two in zip(before, arrays(variables.velocities(model.optimizer))):
        assert abs(one).max() > 0
        np.testing.assert_allclose(two, 0.5 * one, rtol=1e-5)


def case_legacy_updates_reduce_in_one_place():
    model, optimizer = make_model(), hvd.DistributedOptimizer(LEGACY.SGD(0.1))
    loss = tf.reduce_sum(model(tf.ones((2, 8))))
    nodes_before = loss.graph.get_operations()
    optimizer.get_updates(loss, model.trainable_variables)
    added = loss.graph.get_operations()[len(nodes_before) :]
    assert sum(node.type == "HorovodAllreduce" for node in added) == len(model.trainable_variables)


def case_legacy_start_from_the_root():
    model = compiled(hvd.DistributedOptimizer(LEGACY.Adam(0.01)), make_model(hvd.rank()))
    fit(model, epochs=1, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
    assert_same_everywhere(variables.all_variables(model, model.optimizer))
    model.set_weights([weight + hvd.rank() for weight in model.get_weights()])
    tf.compat.v1.keras.backend.get_session().run(hvd.broadcast_global_variables(1))
    root = broadcast_object(arrays(model.variables), 1)
    for one, two in zip(arrays(model.variables), root):
        np.testing.assert_array_equal(one, two)


def case_legacy_elastic_state():
    model = compiled(hvd.DistributedOptimizer(LEGACY.SGD(0.1)), make_model(hvd.rank()))
    state = hvd.elastic.KerasState(model, epoch=0)
    state.sync()
    assert_same_everywhere(model.variables)
    before = arrays(model.variables)
    fit(model, epochs=1)
    state.restore()
    for one, two in zip(before, arrays(model.variables)):
        np.testing.assert_array_equal(one, two)


def case_legacy_what_cannot_work_is_refused():
    expect_raises(ValueError, lambda: hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "keras.optimizers.legacy")
    expect_raises(
        NotImplementedError,
        lambda: hvd.PartialDistributedOptimizer(LEGACY.SGD(0.1), backward_passes_per_step=2),
        "eager execution",
    )


if __name__ == "__main__":
    run_cases(globals())
