"""Cases of the rest of `horovod.keras`: saved files, values, errors, the same on every backend; those of one backend
have its name."""

import copy
import functools
import os
import pickle
import subprocess
import sys
import tempfile
import types
import warnings

import numpy as np
from keras_cases import (
    BACKEND,
    apply,
    arrays,
    assert_same_everywhere,
    compiled,
    expect_raises,
    fit,
    run_cases,
    tensor,
    variable,
)

import horovod.keras as hvd
from horovod._core.errors import NotInitializedError
from horovod._core.operations.objects import allgather_object
from horovod.keras.installed import KERAS_2, keras
from horovod.keras.optimizer import is_distributed

if KERAS_2:
    import tensorflow as tf


def sgd(**options):
    return keras.optimizers.SGD(0.1, **options)


def case_state_of_the_optimizer_is_kept():
    plain = keras.optimizers.Adam(0.05)
    model = compiled(plain)
    fit(model, share=False, epochs=1)
    before = arrays(plain.variables)
    optimizer = hvd.DistributedOptimizer(plain)
    assert int(optimizer.iterations) == 4 and float(optimizer.learning_rate) == np.float32(0.05)
    for one, two in zip(before, arrays(optimizer.variables)):
        np.testing.assert_array_equal(one, two)
    assert isinstance(optimizer, keras.optimizers.Adam) and type(optimizer).__name__ == "Adam"
    model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    fit(model, epochs=1)
    assert int(optimizer.iterations) == 8
    if not KERAS_2:  # whose optimizers cannot be pickled
        assert type(pickle.loads(pickle.dumps(optimizer))) is type(plain)
        assert is_distributed(copy.deepcopy(optimizer))  # Keras itself does not copy the state


def warned(function):
    """What the function's warnings say of ranks that train alone."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function()
    return [str(each.message) for each in caught if "trains alone" in str(each.message)]


def one_step(optimizer, weight):
    apply(optimizer, [tensor([10.0 * hvd.rank()])], [weight])


def case_copies_stay_distributed_or_say_that_they_are_not():
    optimizer = hvd.DistributedOptimizer(sgd())
    copies = [copy.copy(optimizer), copy.deepcopy(optimizer), type(optimizer).from_config(optimizer.get_config())]
    for each in copies:
        weight = variable([0.0])
        assert is_distributed(each) and not warned(lambda each=each, weight=weight: one_step(each, weight))
        assert_same_everywhere([weight])
    plain = [keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))]
    plain.append(keras.optimizers.SGD.from_config(optimizer.get_config()))
    if not KERAS_2:
        plain.append(pickle.loads(pickle.dumps(optimizer)))
    for each in plain:
        weight = variable([0.0])
        (said,) = warned(lambda each=each, weight=weight: one_step(each, weight))
        assert f"Rank {hvd.rank()} of {hvd.size()} trains alone" in said and "hvd.load_model" in said, said
        assert not warned(lambda each=each, weight=weight: one_step(each, weight)), "once"
    # What has never been through a configuration may combine its gradients by hand, and is wrapped without a word.
    assert not warned(lambda: one_step(sgd(), variable([0.0])))
    wrapped = hvd.DistributedOptimizer(keras.optimizers.deserialize(keras.optimizers.serialize(optimizer)))
    assert not warned(lambda: one_step(wrapped, variable([0.0])))


def case_models_loaded_without_horovod_say_so():
    model = compiled(hvd.DistributedOptimizer(sgd()))
    fit(model, epochs=1)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.keras")
        model.save(path)
        (said,) = warned(lambda: fit(keras.saving.load_model(path)))
        assert "trains alone" in said
        assert not warned(lambda: fit(hvd.load_model(path), epochs=1))
        assert not warned(lambda: keras.saving.load_model(path).evaluate(np.zeros((4, 8)), np.zeros(4), verbose=0))


def case_tensorflow_a_tape_combines_for_a_plain_copy():
    import tensorflow as tf

    import horovod.tensorflow as hvd_tf

    optimizer = keras.optimizers.deserialize(keras.optimizers.serialize(hvd.DistributedOptimizer(sgd())))
    weight = variable([0.0])

    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(weight * 10.0 * hvd.rank())
        gradients = hvd_tf.DistributedGradientTape(tape).gradient(loss, [weight])
        optimizer.apply_gradients(zip(gradients, [weight]))

    assert not warned(step)
    assert_same_everywhere([weight])


def case_classes_say_whose_they_are():
    for kind in (keras.optimizers.SGD, keras.optimizers.Adam, OwnSGD, OtherSGD):
        plain = kind(0.1)
        optimizer = hvd.DistributedOptimizer(plain)
        assert str(optimizer.__class__) == f"<class 'horovod._keras.{kind.__name__}'>"
        assert optimizer.__class__ is type(optimizer) and isinstance(optimizer, kind)
        exported = type(plain) is getattr(keras.optimizers, kind.__name__, None)
        assert optimizer.__class__.__module__ == ("horovod._keras" if exported else type(plain).__module__)
        assert keras.optimizers.serialize(optimizer) == keras.optimizers.serialize(plain)
        again = optimizer.__class__.from_config(optimizer.get_config())
        assert is_distributed(again) and float(again.learning_rate) == np.float32(0.1)
        weight = variable([0.0])
        apply(again, [tensor([10.0 * hvd.rank()])], [weight])
        assert_same_everywhere([weight])
        expect_raises(ValueError, functools.partial(hvd.DistributedOptimizer, again), "already")


def case_variables_may_be_given_one_gradient():
    # As torch.autograd.grad gives it for a sum of two.
    for op in (hvd.Average, hvd.Sum):
        optimizer, weights = hvd.DistributedOptimizer(sgd(), op=op), [variable([0.0]), variable([0.0])]
        gradient = tensor([1.0 + hvd.rank()])
        apply(optimizer, [gradient, gradient], weights)
        total = hvd.size() * (hvd.size() + 1) / 2 / (1 if op == hvd.Sum else hvd.size())
        np.testing.assert_allclose(arrays(weights), [[-0.1 * total]] * 2, rtol=1e-6)


def case_private_allreduce():
    optimizer, weight = hvd.DistributedOptimizer(sgd()), variable([0.0])
    (average,) = optimizer._allreduce([tensor([2.0 * hvd.rank()])], [weight])
    assert float(average[0]) == hvd.size() - 1


def case_tensorflow_private_allreduce_replaced():
    # As NVIDIA's distributed-embeddings does it.
    optimizer, weights = hvd.DistributedOptimizer(sgd(), op=hvd.Sum), [variable([0.0]), variable([0.0])]
    calls = []

    def register_then_allreduce(self, grads, vars):  # noqa: A002
        calls.append(len(grads))
        self.register_local_var(weights[1])
        return self.raw_allreduce(grads, vars)

    optimizer.raw_allreduce = optimizer._allreduce
    optimizer._allreduce = types.MethodType(register_then_allreduce, optimizer)
    for step in (1, 2):
        apply(optimizer, [tensor([1.0]), tensor([float(hvd.rank())])], weights)
        np.testing.assert_allclose(arrays(weights)[0], [-0.1 * step * hvd.size()], rtol=1e-6)
        np.testing.assert_allclose(arrays(weights)[1], [-0.1 * step * hvd.rank() / hvd.size()], rtol=1e-6)
    assert calls == [2, 2]


def case_old_import_paths():
    from horovod import _keras
    from horovod._keras import callbacks, elastic

    optimizer = _keras.create_distributed_optimizer(
        keras, sgd(), None, "", "", hvd.Compression.none, False, 1.0, hvd.Sum, process_set=hvd.global_process_set
    )
    weight = variable([0.0])
    apply(optimizer, [tensor([1.0])], [weight])
    np.testing.assert_allclose(arrays([weight])[0], [-0.1 * hvd.size()], rtol=1e-6)
    listed = _keras.CallableList([1, 2])
    assert listed() is listed == [1, 2]

    class Both(callbacks.MetricAverageCallbackImpl, keras.callbacks.Callback):
        def __init__(self):
            super().__init__(keras.backend, "")

    class State:
        epoch = batch = commits = 0

        def commit(self):
            self.commits += 1

    state, model = State(), compiled(hvd.DistributedOptimizer(sgd()))
    history = fit(
        model,
        callbacks=[
            Both(),
            callbacks.BroadcastGlobalVariablesCallbackImpl(keras.backend, 0),
            callbacks.LearningRateWarmupCallbackImpl(keras.backend, 0.1, warmup_epochs=1),
            callbacks.LearningRateScheduleCallbackImpl(keras.backend, 0.1, 0.5, start_epoch=1),
            elastic.CommitStateCallbackImpl(keras.backend, state, 100),
            elastic.UpdateBatchStateCallbackImpl(keras.backend, state),
            elastic.UpdateEpochStateCallbackImpl(keras.backend, state),
        ],
    )
    assert (state.epoch, state.batch, state.commits) == (2, 0, 2)
    np.testing.assert_allclose(history["lr"], [0.1, 0.1], rtol=1e-6)
    assert len(set(allgather_object(history["loss"][-1]))) == 1


RELOAD = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "horovod":
            raise ImportError("horovod is blocked")
sys.meta_path.insert(0, Blocked())
import numpy as np
import {keras} as keras
model = keras.saving.load_model(sys.argv[1])
assert type(model.optimizer) is type(keras.optimizers.Adam(0.1)), type(model.optimizer)
assert int(model.optimizer.iterations) == 8
model.fit(np.zeros((4, 8)), np.zeros(4), verbose=0)
print("RELOADED", float(np.abs(model.get_weights()[0]).sum()) > 0)
"""


def case_saved_files():
    model = compiled(hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)))
    fit(model)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.keras")
        model.save(path)
        again = hvd.load_model(path, compression=hvd.Compression.bf16)
        for one, two in zip(arrays(model.optimizer.variables), arrays(again.optimizer.variables)):
            np.testing.assert_array_equal(one, two)
        expect_raises(ValueError, lambda: hvd.DistributedOptimizer(again.optimizer), "already")
        if not KERAS_2:
            expect_raises(NotImplementedError, lambda: hvd.load_model(path, legacy_opts=True), "legacy")
        fit(again, epochs=1)
        assert_same_everywhere(again.variables)
        assert keras.optimizers.serialize(model.optimizer) == {
            **keras.optimizers.serialize(keras.optimizers.Adam(0.01)),
            "config": model.optimizer.get_config(),
        }
        done = None
        if hvd.rank() == 0:
            command = [sys.executable, "-c", RELOAD.format(keras=keras.__name__), path]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        hvd.broadcast(0, 0, name="reloaded")
        assert done is None or "RELOADED True" in done.stdout, done.stderr[-3000:]


@keras.saving.register_keras_serializable("tests")
class OwnSGD(keras.optimizers.SGD):
    pass


class OtherSGD(keras.optimizers.SGD):
    pass


def case_optimizers_of_the_users_own():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.keras")
        for kind, options in ((OwnSGD, {}), (OtherSGD, {"custom_optimizers": [OtherSGD]})):
            model = compiled(hvd.DistributedOptimizer(kind(0.1)))
            fit(model, epochs=1)
            model.save(path)
            again = hvd.load_model(path, **options)
            assert isinstance(again.optimizer, kind)
            fit(again, epochs=1)


def is_tensor(value):
    return tf.is_tensor(value) if KERAS_2 else keras.ops.is_tensor(value)


def dtype_of(value):
    return arrays([value])[0].dtype


def case_values():
    rank, size = hvd.rank(), hvd.size()
    assert hvd.allreduce(float(rank)) == (size - 1) / 2
    assert hvd.allreduce(rank, op=hvd.Sum, name="ranks") == size * (size - 1) // 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        assert hvd.allreduce(np.float32(rank), average=False) == size * (size - 1) / 2
        expect_raises(ValueError, lambda: hvd.allreduce(1.0, average=True, op=hvd.Sum), "average")
    own = tensor(np.full((2, 2), rank + 1.0))
    for compression in (hvd.Compression.fp16, hvd.Compression.none):
        reduced = hvd.allreduce(own, prescale_factor=2.0, compression=compression)
        assert dtype_of(reduced) == np.float32
        np.testing.assert_array_equal(*arrays([reduced]), np.full((2, 2), size + 1.0))
    gathered = hvd.allgather(np.full((rank + 1, 2), rank))
    np.testing.assert_array_equal(arrays([gathered])[0][:, 0], [r for r in range(size) for _ in range(r + 1)])
    np.testing.assert_array_equal(*arrays([hvd.broadcast(own, 1)]), np.full((2, 2), 2.0))
    assert hvd.broadcast(rank, root_rank=1) == 1
    scattered = hvd.reducescatter(np.arange(4.0), op=hvd.Sum)
    np.testing.assert_array_equal(*arrays([scattered]), size * np.arange(4.0)[2 * rank :][:2])
    expect_raises(RuntimeError, lambda: hvd.broadcast_global_variables(0), "BroadcastGlobalVariablesCallback(0)")


def case_classes_and_names_are_no_optimizers():
    expect_raises(ValueError, lambda: hvd.DistributedOptimizer(keras.optimizers.SGD), "make an instance: SGD(0.01).")
    expect_raises(ValueError, lambda: hvd.DistributedOptimizer("adam"), "use keras.optimizers.get('adam').")


def case_values_are_tensors():
    for given, expected in (
        (1.0, np.float32),
        ([1.0, 2.0], np.float32),
        (3, np.int32),
        (np.float32(1), np.float32),
        (np.ones(2, np.float16), np.float16),
        (tensor([1.0]), np.float32),
    ):
        listed = [hvd.allreduce(given, op=hvd.Sum), hvd.broadcast(given, 0)]
        if np.ndim(given):
            listed += [hvd.allgather(given), hvd.reducescatter(given, op=hvd.Sum)]
        for result in listed:
            assert is_tensor(result), (given, type(result))
            assert dtype_of(result) == expected, (given, dtype_of(result))
    # What one rank's rows need, all have.
    widths = allgather_object(dtype_of(hvd.reducescatter([1, 2**40], op=hvd.Sum)).itemsize)
    assert widths == [8] * hvd.size()
    # Nothing is cut off: JAX has no tensors of 64 bits.
    large = 2.0**60 + 2.0**40
    for given in (np.int64(large), int(large), np.float64(large)):
        result = hvd.broadcast(given, 0)
        assert is_tensor(result) == (BACKEND != "jax") and float(np.asarray(arrays([result])[0])) == large
        assert dtype_of(result).itemsize == 8


def case_errors():
    expect_raises(ValueError, lambda: hvd.DistributedOptimizer(sgd(), op=hvd.Adasum), "Average and hvd.Sum")
    expect_raises(ValueError, lambda: hvd.DistributedOptimizer(sgd(), op=3), "Average and hvd.Sum")
    expect_raises(
        ValueError,
        lambda: hvd.DistributedOptimizer(sgd(), op=hvd.Sum, gradient_predivide_factor=2.0),
        "gradient_predivide_factor",
    )
    expect_raises(ValueError, lambda: hvd.DistributedOptimizer("sgd"), "str")
    expect_raises(ValueError, lambda: hvd.DistributedOptimizer(hvd.DistributedOptimizer(sgd())), "already")
    expect_raises(ValueError, lambda: hvd.PartialDistributedOptimizer(sgd(), backward_passes_per_step=0), "passes")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        hvd.DistributedOptimizer(sgd(), num_groups=2)
    assert any("num_groups" in str(warning.message) for warning in caught)
    if not KERAS_2:  # which takes pairs
        optimizer = hvd.DistributedOptimizer(sgd())
        two = [variable([0.0, 0.0]) for _ in range(2)]
        expect_raises(ValueError, lambda: optimizer.apply([two[0].value], two), "1 gradients for 2")
    if BACKEND != "tensorflow":
        expect_raises(ValueError, lambda: hvd.DistributedOptimizer(sgd(), device_dense="/cpu:0"), BACKEND)
        expect_raises(ImportError, lambda: __import__("horovod.tensorflow.keras"), "TensorFlow backend")


def case_tensorflow_own_module():
    import horovod.tensorflow.keras as tfk

    with tempfile.TemporaryDirectory() as folder:
        best = tfk.callbacks.BestModelCheckpoint(monitor="loss", save_weights_only=True)
        model = compiled(
            tfk.DistributedOptimizer(sgd(), backward_passes_per_step=2, process_set=tfk.global_process_set),
        )
        expect_raises(ValueError, lambda: fit(model, callbacks=[best]), "filepath")
        best.filepath = os.path.join(folder, "best.weights.h5")
        fit(model, callbacks=[best, tfk.callbacks.BroadcastGlobalVariablesCallback(0)])
        assert os.path.exists(best.filepath)
    import horovod.tensorflow as tf_hvd

    through = compiled(tf_hvd.DistributedOptimizer(sgd(), backward_passes_per_step=2))
    fit(through, epochs=1)
    assert int(through.optimizer.iterations) == 4
    assert_same_everywhere(through.variables)
    assert hasattr(tfk, "PartialDistributedOptimizer")


def case_one_rank_with_another_shape_is_an_error():
    optimizer = hvd.DistributedOptimizer(sgd())
    weight = variable(np.zeros(2 + hvd.rank()))

    @hvd.elastic.run
    def step(state):
        apply(optimizer, [tensor(np.ones(2 + hvd.rank()))], [weight])

    class State:
        on_hosts_updated = sync = restore = lambda *args: None

    error = expect_raises(Exception, lambda: step(State()), "shape")
    assert BACKEND == "tensorflow" or type(error).__name__ == "MismatchError", repr(error)


def case_before_init():
    hvd.shutdown()
    expect_raises(NotInitializedError, lambda: hvd.DistributedOptimizer(sgd()), "init")
    hvd.init()


if __name__ == "__main__":
    run_cases(globals())
