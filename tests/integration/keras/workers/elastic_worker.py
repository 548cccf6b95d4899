"""Cases of elastic training with Keras on one host: failures and host news are raised by the cases themselves."""

from types import SimpleNamespace

import numpy as np
from jobs.aborted import aborted_on_a_gpu
from keras_cases import (
    X,
    Y,
    arrays,
    assert_close,
    assert_same_everywhere,
    compiled,
    expect_raises,
    fit,
    make_model,
    run_cases,
)

import horovod.keras as hvd
from horovod._core.errors import HorovodInternalError, HostsUpdatedInterrupt
from horovod._core.life import session
from horovod._core.training.elastic import snapshot
from horovod._native.abi import INTERNAL
from horovod.keras import reducer
from horovod.keras.installed import keras

EPOCHS = 3


class Raise(keras.callbacks.Callback):
    """Raises once, after the second batch of the second epoch."""

    def __init__(self, error):
        super().__init__()
        self.error = error
        self.epoch = 0

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if (self.epoch, batch) == (1, 1) and self.error is not None:
            error, self.error = self.error, None
            raise error


def train_with(disturbance):
    """Trains with a commit per epoch; what the callbacks or the case do happens once."""
    model = compiled(hvd.DistributedOptimizer(keras.optimizers.Adam(0.05)), make_model(hvd.rank()))
    state = hvd.elastic.KerasState(model, epoch=0, batch=0)
    starts, resets = [], []
    state.register_reset_callbacks([lambda: resets.append(hvd.size())])

    @hvd.elastic.run
    def train(state):
        starts.append((state.epoch, state.batch))
        callbacks = [
            *disturbance,
            hvd.elastic.UpdateBatchStateCallback(state),
            hvd.elastic.UpdateEpochStateCallback(state),
            hvd.elastic.CommitStateCallback(state, batches_per_commit=4),
        ]
        fit(model, epochs=EPOCHS, initial_epoch=state.epoch, callbacks=callbacks)
        return "done"

    assert train(state) == "done"
    assert (state.epoch, state.batch) == (EPOCHS, 0)
    undisturbed = compiled(keras.optimizers.Adam(0.05))
    fit(undisturbed, share=False, epochs=EPOCHS)
    return model, undisturbed, starts, resets


def case_failure_between_steps_is_retried():
    model, undisturbed, starts, resets = train_with([Raise(HorovodInternalError("a failure made by the test"))])
    assert starts == [(0, 0), (1, 0)] and resets == [hvd.size()]
    assert_same_everywhere(model.variables + model.optimizer.variables)
    assert_close(model, undisturbed)


def case_host_news_go_on_without_a_restore():
    model, undisturbed, starts, resets = train_with([Raise(HostsUpdatedInterrupt())])
    # The state's own counts are kept: nothing is lost; the script does its epoch anew.
    assert starts == [(0, 0), (1, 1)] and resets == [hvd.size()]
    assert_same_everywhere(model.variables)


def _check_failure_between_passes(ones_of):
    """Of a step that failed in its second pass nothing is left, neither after a restore nor after host news."""
    for news, lost in ((HorovodInternalError("a failure made by the test"), True), (HostsUpdatedInterrupt(), False)):
        optimizer = hvd.PartialDistributedOptimizer(keras.optimizers.SGD(0.05), backward_passes_per_step=2)
        model = compiled(optimizer)
        state = hvd.elastic.KerasState(model, optimizer, steps=0)
        undisturbed = compiled(keras.optimizers.SGD(0.05))
        weights, failures = model.trainable_variables, [news]

        @hvd.elastic.run
        def train(state, weights=weights, optimizer=optimizer, failures=failures):
            ones = [ones_of(tuple(weight.shape)) for weight in weights]
            while state.steps < 2:
                optimizer.apply_gradients(list(zip(ones, weights)))
                if failures:
                    raise failures.pop()
                optimizer.apply_gradients([(one * 10, weight) for one, weight in zip(ones, weights)])
                state.steps += 1
                state.commit()

        train(state)
        expected = [array - 2 * 11 * 0.05 for array in arrays(undisturbed.trainable_variables)]
        for got, wanted in zip(arrays(weights), expected):
            np.testing.assert_allclose(got, wanted, rtol=1e-5)
        assert int(optimizer.iterations) == (4 if lost else 5)


def case_torch_failure_between_passes():
    import torch

    _check_failure_between_passes(torch.ones)


def case_tensorflow_failure_between_passes():
    import tensorflow as tf

    import horovod.tensorflow as tf_hvd

    _check_failure_between_passes(tf.ones)

    hvd.elastic.KerasState, kept = tf_hvd.elastic.TensorFlowKerasState, hvd.elastic.KerasState
    try:
        _check_failure_between_passes(tf.ones)
    finally:
        hvd.elastic.KerasState = kept


class Abort(keras.callbacks.Callback):
    """The engine of the last rank fails once, in the middle of training."""

    done = False

    def on_train_batch_begin(self, batch, logs=None):
        if batch == 2 and not self.done and int(self.model.optimizer.iterations) > 2:
            self.done = True
            if hvd.rank() == hvd.size() - 1:
                session.require().engine.abort(INTERNAL, "a failure made by the test")


def case_jax_failure_in_a_step_is_retried():
    model, undisturbed, starts, resets = train_with([Abort()])
    assert starts == [(0, 0), (1, 0)] and resets == [hvd.size()]
    assert_same_everywhere(model.variables + model.optimizer.variables)
    assert_close(model, undisturbed)


def case_jax_failure_in_a_host_call_is_retried():
    from horovod.jax import operators

    calls = []
    usable, operators.usable = operators.usable, lambda: False
    reduce = reducer.ListReducer.__call__

    def fail_once(self, tensors):
        calls.append(len(tensors))
        if len(calls) == 6:
            raise HorovodInternalError("a failure made by the test")
        return reduce(self, tensors)

    reducer.ListReducer.__call__ = fail_once
    try:
        model, undisturbed, starts, resets = train_with([])
    finally:
        reducer.ListReducer.__call__ = reduce
        operators.usable = usable
    assert calls and starts == [(0, 0), (1, 0)] and resets == [hvd.size()]
    assert_same_everywhere(model.variables + model.optimizer.variables)
    assert_close(model, undisturbed)


def case_steps_know_the_new_number_of_ranks():
    model = make_model()
    own = hvd.PartialDistributedOptimizer(keras.optimizers.SGD(0.5), local_layers=model.layers[-1])
    state = hvd.elastic.KerasState(compiled(own, model))
    model.fit(X, Y, batch_size=len(X), verbose=0)
    alone = compiled(keras.optimizers.SGD(0.5))
    for variable, value in zip(alone.variables, arrays(model.variables)):
        variable.assign(value)
    rank = hvd.rank()
    hvd.shutdown()
    try:
        hvd.init(comm=[rank])
        assert hvd.size() == 1
        state.on_reset()
        for trained in (model, alone):
            trained.fit(X, Y, batch_size=len(X), verbose=0)
        hvd.shutdown()
    finally:
        hvd.init()
    assert_close(model, alone)


def case_state_saves_restores_and_syncs():
    model = compiled(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9)), make_model(hvd.rank()))
    state = hvd.elastic.KerasState(model, note=hvd.rank())
    state.sync()
    assert state.note == 0
    assert_same_everywhere(model.variables + model.optimizer.variables)
    kept = arrays(model.variables + model.optimizer.variables)
    fit(model, epochs=1)
    state.note = 5
    state.restore()
    for one, two in zip(kept, arrays(model.variables + model.optimizer.variables)):
        np.testing.assert_array_equal(one, two)
    assert state.note == 0
    unbuilt = keras.Sequential([keras.layers.Dense(1)])
    expect_raises(ValueError, lambda: hvd.elastic.KerasState(unbuilt), "built")


def case_a_commit_is_of_its_moment_although_training_goes_on():
    """The background copies when the next steps have been made; where it has nothing to do, all was copied at once."""
    model = compiled(hvd.DistributedOptimizer(keras.optimizers.Adam(0.1)))
    state = hvd.elastic.KerasState(model, note=1)
    listed = model.variables + model.optimizer.variables
    work, background = [], snapshot._background
    for _ in range(3):
        kept = arrays(listed)
        snapshot._background = lambda: SimpleNamespace(put=work.append)
        try:
            state.save()
            fit(model, epochs=1)
            for variable in model.trainable_variables:
                variable.assign(variable * 3)
        finally:
            snapshot._background = background
        later = len(work)
        while work:
            work.pop()()
        assert later == (keras.backend.backend() == "tensorflow")
        state.restore()
        for one, two in zip(kept, arrays(listed)):
            np.testing.assert_array_equal(one, two)
        fit(model, epochs=1)


def case_what_was_aborted_on_a_gpu_is_not_kept():
    """A rank dies while the GPU is at work for a step that the host has done: what comes out of it is anything."""
    model = compiled(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9)))
    state = hvd.elastic.KerasState(model, note=1)
    for _ in range(2):  # into both memories
        state.save()
    listed = model.variables + model.optimizer.variables
    kept = arrays(listed)
    for step in ("save", "commit"):
        for variable in model.trainable_variables:
            variable.assign(variable * 3)
        state.note = 2
        with aborted_on_a_gpu():
            expect_raises(HorovodInternalError, getattr(state, step), "was not saved")
        state.restore()
        for one, two in zip(kept, arrays(listed)):
            np.testing.assert_array_equal(one, two)
        assert state.note == 1


def case_tensorflow_both_states_of_a_model_keep_everything():
    from horovod.tensorflow.elastic import TensorFlowKerasState

    for kind in (hvd.elastic.KerasState, TensorFlowKerasState):
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.5 + hvd.rank(), momentum=0.9))
        state = kind(compiled(optimizer, make_model(hvd.rank())))
        state.sync()
        assert_same_everywhere([optimizer.learning_rate])
        optimizer.learning_rate.assign(0.125)
        fit(state.model, epochs=1)
        state.restore()
        assert arrays([optimizer.learning_rate, optimizer.iterations]) == [0.5, 0], kind


def case_tensorflow_variables_alone_are_a_state():
    import tensorflow as tf

    from horovod.tensorflow.elastic import TensorFlowState

    for attributes in ({}, {"epoch": 0}):
        variable = tf.Variable([1.0 + hvd.rank()])
        state = TensorFlowState([variable], **attributes)
        state.sync()
        variable.assign([5.0])
        state.restore()
        assert variable.numpy() == [1.0], attributes
    with tf.Graph().as_default(), tf.compat.v1.Session() as running:
        variable = tf.compat.v1.get_variable("v", initializer=[1.0 + hvd.rank()])
        running.run(tf.compat.v1.global_variables_initializer())
        state = TensorFlowState(session=running)
        state.sync()
        variable.load([5.0], running)
        state.restore()
        assert running.run(variable) == [1.0]
    expect_raises(ValueError, TensorFlowState, "eager mode", "variables=")


if __name__ == "__main__":
    run_cases(globals())
