"""Cases of training with `horovod.keras`, the same on every backend; those of one backend have its name."""

import contextlib
import functools
import warnings
from unittest import mock

import numpy as np
from keras_cases import (
    BACKEND,
    X,
    Y,
    apply,
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
from horovod._core.life.process_sets import ProcessSet
from horovod._core.operations.objects import broadcast_object
from horovod.keras import reducer
from horovod.keras.installed import KERAS_2, keras

ONLY_ZERO = ProcessSet([0])


def sgd(**options):
    return keras.optimizers.SGD(0.1, **options)


def case_training_is_that_of_one_process():
    model = compiled(hvd.DistributedOptimizer(sgd(momentum=0.9)), metrics=["accuracy"])
    history = fit(model, callbacks=[hvd.callbacks.MetricAverageCallback()])
    alone = compiled(sgd(momentum=0.9), metrics=["accuracy"])
    expected = fit(alone, share=False)
    assert_same_everywhere(model.variables + model.optimizer.variables)
    assert_close(model, alone)
    np.testing.assert_allclose(history["loss"], expected["loss"], atol=1e-5)
    np.testing.assert_allclose(history["accuracy"], expected["accuracy"], atol=1e-6)
    assert int(model.optimizer.iterations) == 8


def case_what_keras_does_around_a_step_stays():
    kinds = [lambda: keras.optimizers.AdamW(0.01, use_ema=True, global_clipnorm=0.1)]
    if not KERAS_2:
        kinds.append(lambda: sgd(gradient_accumulation_steps=2))
    for kind in kinds:
        options = {"steps_per_execution": 2} if BACKEND != "torch" else {}
        model = compiled(hvd.DistributedOptimizer(kind()), **options)
        fit(model)
        alone = compiled(kind())
        fit(alone, share=False)
        assert_close(model, alone)
        assert_same_everywhere(model.variables + model.optimizer.variables)


def case_options_change_only_the_way():
    model = make_model()
    groups = [[model.layers[0].kernel, model.layers[1].bias]]
    options = [{"groups": groups}, {"groups": 2}, {"gradient_predivide_factor": 2.0}, {"name": "own"}]
    for chosen in options:
        trained = compiled(hvd.DistributedOptimizer(sgd(), **chosen), model if chosen is options[0] else make_model())
        fit(trained)
        assert_same_everywhere(trained.variables)
        whole = compiled(sgd())
        fit(whole, share=False)
        assert_close(trained, whole)


def case_compression_and_sum():
    whole = compiled(sgd())
    fit(whole, share=False, epochs=1)
    for compression in (hvd.Compression.fp16, hvd.Compression.bf16):
        model = compiled(hvd.DistributedOptimizer(sgd(), compression=compression))
        fit(model, epochs=1)
        assert_same_everywhere(model.variables)
        assert_close(model, whole, atol=0.01)
    total = compiled(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1 / hvd.size()), op=hvd.Sum))
    fit(total, epochs=1)
    assert_close(total, whole)


def case_broadcast_callback():
    model = compiled(hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)), make_model(hvd.rank()))
    own = model.layers[1].bias
    own.assign(np.full(own.shape, hvd.rank(), "float32"))
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0, local_variables=[own])
    model.optimizer.register_local_var(own)
    fit(model, callbacks=[callback])
    assert callback.broadcast_done
    shared = [v for v in model.variables if v is not own]
    assert_same_everywhere(shared)
    assert abs(arrays([own])[0].mean() - hvd.rank()) < 0.2
    expect_raises(ValueError, lambda: callback.register_local_var("bias"), "variable")


def case_first_batch_is_before_the_broadcast():
    seen = []

    class Look(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            seen.append(arrays([self.model.layers[0].kernel])[0])

    model = compiled(hvd.DistributedOptimizer(sgd()), make_model(hvd.rank()))
    start = arrays([model.layers[0].kernel])[0]
    fit(model, epochs=1, callbacks=[Look(), hvd.callbacks.BroadcastGlobalVariablesCallback(1), Look()])
    from_root = broadcast_object([start, *seen], 1)
    assert abs(seen[0] - start).max() < 0.5  # still this rank's own
    np.testing.assert_array_equal(seen[1], from_root[2])


def case_local_variables():
    def gradients_of(scale):
        optimizer = hvd.PartialDistributedOptimizer(
            keras.optimizers.SGD(1.0), local_layers=layer, scale_local_gradients=scale
        )
        layer.build((None, 2))
        other = variable(np.zeros(3))
        layer.kernel.assign(np.zeros((2, 1)))
        apply(
            optimizer,
            [tensor(np.full(v.shape, 1.0 + hvd.rank())) for v in (layer.kernel, other)],
            [layer.kernel, other],
        )
        return [-array.ravel()[0] for array in arrays([layer.kernel, other])]

    layer = keras.layers.Dense(1, use_bias=False)  # built after it has been given away
    average = (1 + hvd.size()) / 2
    assert gradients_of(False) == [1.0 + hvd.rank(), average]
    layer = keras.layers.Dense(1, use_bias=False)
    assert gradients_of(True) == [(1.0 + hvd.rank()) / hvd.size(), average]
    expect_raises(ValueError, lambda: hvd.PartialDistributedOptimizer(sgd(), local_layers=["dense"]), "layer")


def case_process_set():
    model = compiled(hvd.PartialDistributedOptimizer(sgd(), process_set=ONLY_ZERO))
    fit(model, epochs=1)
    own = slice(hvd.rank(), None, hvd.size())
    alone = compiled(sgd())
    alone.fit(X[own], Y[own], batch_size=8, shuffle=False, epochs=1, verbose=0)
    assert_close(model, alone)
    unknown = ProcessSet([0, 1])
    expect_raises(ValueError, lambda: hvd.PartialDistributedOptimizer(sgd(), process_set=unknown), "not registered")


def case_warm_up_sets_the_rates():
    rates = []

    class Look(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            rates.extend(map(float, arrays([self.model.optimizer.learning_rate])))

    model = compiled(hvd.DistributedOptimizer(sgd(momentum=0.5)))
    warm_up = hvd.callbacks.LearningRateWarmupCallback(0.1, warmup_epochs=2)
    history = fit(model, epochs=3, callbacks=[warm_up, Look()])
    low = 0.1 / hvd.size()
    np.testing.assert_allclose(rates, [*np.linspace(low, 0.1, 9)[1:], *[0.1] * 4], rtol=1e-5)
    np.testing.assert_allclose(history["lr"][1:], [0.1, 0.1], rtol=1e-6)


def case_momentum_correction_scales_the_velocity():
    for optimizer, name in (
        (sgd(momentum=0.9), "momentums"),
        (keras.optimizers.RMSprop(0.1, momentum=0.9), "_momentums"),
    ):
        model = compiled(hvd.DistributedOptimizer(optimizer))
        fit(model, epochs=1)
        velocities = getattr(model.optimizer, name)
        before = arrays(velocities)
        schedule = hvd.callbacks.LearningRateScheduleCallback(0.1, lambda epoch: 0.5)
        schedule.set_model(model)
        schedule.on_epoch_begin(0)
        for one, two in zip(before, arrays(velocities)):
            np.testing.assert_allclose(two, 0.5 * one, rtol=1e-5)


def case_keras3_loss_scale_skips_on_all_ranks():
    optimizer = hvd.DistributedOptimizer(keras.optimizers.LossScaleOptimizer(sgd(), initial_scale=4.0))
    weight = variable(np.zeros(2))
    optimizer.build([weight])

    def step(value):
        gradient = tensor(np.full(2, value))
        if BACKEND != "jax":
            optimizer.apply([gradient], [weight])
            return
        values = [[v.value for v in optimizer.variables], [gradient], [weight.value]]
        changed, state = optimizer.stateless_apply(*values)
        for target, new in zip([weight, *optimizer.variables], [*changed, *state]):
            target.assign(new)

    step(np.inf if hvd.rank() == 1 else 4.0)
    np.testing.assert_array_equal(arrays([weight])[0], np.zeros(2))
    step(4.0)  # the scale is 2 now
    np.testing.assert_allclose(arrays([weight])[0], np.full(2, -0.2), rtol=1e-6)
    plain = hvd.DistributedOptimizer(sgd())
    expect_raises(ValueError, lambda: keras.optimizers.LossScaleOptimizer(plain), "LossScaleOptimizer(optimizer)")


def _check_passes(average, **compile_options):
    whole = compiled(sgd(momentum=0.9))
    fit(whole, share=False)
    rate = keras.optimizers.SGD(0.1 if average else 0.05, momentum=0.9)
    optimizer = hvd.PartialDistributedOptimizer(rate, backward_passes_per_step=2, average_aggregated_gradients=average)
    model = compiled(optimizer, **compile_options)
    # Half the batch in every pass.
    fit(model, batch=8)
    assert int(optimizer.iterations) == 16
    assert_same_everywhere(model.variables)
    # The two passes of a step hold the same samples as one batch of the reference.
    assert_close(model, whole)


def case_tensorflow_passes():
    _check_passes(True)
    _check_passes(False)
    _check_passes(True, run_eagerly=True)
    _check_passes(True, jit_compile=True)


def case_torch_passes():
    _check_passes(True)
    _check_passes(False)


def case_torch_compiled_steps_reduce():
    import torch

    # Not with SGD, whose own methods break the graph.
    model = compiled(hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)), jit_compile=True)
    alone = compiled(keras.optimizers.Adam(0.01))
    # Keras takes inductor, which compiles 13 s longer; what Dynamo traces is the same.
    with mock.patch.object(torch, "compile", functools.partial(torch.compile, backend="aot_eager")):
        fit(model)
    fit(alone, share=False)
    assert_same_everywhere(model.variables + model.optimizer.variables)
    assert_close(model, alone)


def case_torch_gradients_missing_in_a_pass():
    import torch

    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), backward_passes_per_step=2)
    variables = [keras.Variable(np.zeros(2, "float32")) for _ in range(2)]
    optimizer.build(variables)
    one = torch.ones(2)
    for first, second, expected in ((None, one, -1.0), (one, None, -2.0), (one, one, -4.0)):
        optimizer.apply([one, first], variables)
        optimizer.apply([one, second], variables)
        np.testing.assert_allclose(keras.ops.convert_to_numpy(variables[1]), expected)


def case_torch_passes_of_two_lists():
    import torch

    optimizer = hvd.PartialDistributedOptimizer(keras.optimizers.SGD(1.0), backward_passes_per_step=2)
    one, other = (keras.Variable(np.zeros(2, "float32")) for _ in range(2))
    optimizer.build([one, other])
    for expected in (0.0, -2.0, -2.0, -4.0):
        optimizer.apply([torch.ones(2)], [one])
        optimizer.apply([torch.full((2,), 100.0)], [other])
        np.testing.assert_allclose(keras.ops.convert_to_numpy(one), expected)
        np.testing.assert_allclose(keras.ops.convert_to_numpy(other), 100 * expected)


def case_jax_passes_are_refused():
    expect_raises(
        ValueError,
        lambda: hvd.PartialDistributedOptimizer(sgd(), backward_passes_per_step=2),
        "gradient_accumulation_steps=2",
    )


def case_jax_steps_call_the_core():
    model = compiled(hvd.DistributedOptimizer(sgd(), groups=2), steps_per_execution=2)
    with count_host_calls() as calls:
        fit(model, epochs=1)
    assert not calls


def case_jax_host_call_elsewhere():
    from horovod.jax import operators

    class Halves:
        """A compressor of the user's own, which needs NumPy's arrays."""

        def compress(self, tensor):
            return np.asarray(tensor, "float16"), tensor.dtype

        def decompress(self, tensor, dtype):
            return np.asarray(tensor, dtype)

    whole = compiled(sgd())
    fit(whole, share=False)
    usable = operators.usable
    for options, core in (({}, False), ({"compression": Halves()}, True)):
        operators.usable = lambda core=core: core and usable()
        try:
            model = compiled(hvd.DistributedOptimizer(sgd(), **options))
            with count_host_calls() as calls:
                fit(model)
        finally:
            operators.usable = usable
        assert calls
        assert_same_everywhere(model.variables)
        assert_close(model, whole, atol=1e-5 if not core else 0.01)


@contextlib.contextmanager
def count_host_calls():
    calls = []
    reduce = reducer.ListReducer.__call__
    reducer.ListReducer.__call__ = lambda self, tensors: calls.append(1) or reduce(self, tensors)
    try:
        yield calls
    finally:
        reducer.ListReducer.__call__ = reduce


def case_tensorflow_xla_on_the_cpu():
    model = compiled(hvd.DistributedOptimizer(sgd(momentum=0.9)), jit_compile=True)
    fit(model, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
    alone = compiled(sgd(momentum=0.9))
    fit(alone, share=False)
    assert model.jit_compile
    assert_same_everywhere(model.variables)
    assert_close(model, alone)


def case_tensorflow_xla_without_cuda_is_refused_or_turned_off():
    from horovod.tensorflow.collectives import xla

    real, xla.holds_no_collectives = xla.holds_no_collectives, lambda: True
    try:
        model = compiled(hvd.DistributedOptimizer(sgd()), jit_compile=True)
        expect_raises(ValueError, lambda: fit(model), "jit_compile=False")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fit(model, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
        assert not model.jit_compile and any("jit_compile" in str(warning.message) for warning in caught)
    finally:
        xla.holds_no_collectives = real


def case_tensorflow_sparse_gradients():
    import tensorflow as tf

    indices = np.arange(32).reshape(16, 2) % 10
    results = []
    for make in (
        lambda: hvd.DistributedOptimizer(sgd()),
        lambda: hvd.DistributedOptimizer(sgd(), sparse_as_dense=True),
        sgd,
    ):
        model = keras.Sequential(
            [keras.Input((2,), dtype="int32"), keras.layers.Embedding(10, 3), keras.layers.GlobalAveragePooling1D()]
        )
        model.layers[0].embeddings.assign(np.arange(30.0).reshape(10, 3) / 30)
        compiled(make(), model)
        share = slice(None) if make is sgd else slice(hvd.rank(), None, hvd.size())
        size = 16 if make is sgd else 16 // hvd.size()
        model.fit(indices[share], Y[:16][share], batch_size=size, shuffle=False, epochs=3, verbose=0)
        results.append(arrays(model.variables)[0])
    np.testing.assert_allclose(results[0], results[2], atol=1e-6)
    np.testing.assert_allclose(results[1], results[2], atol=1e-6)
    assert tf.executing_eagerly()


if __name__ == "__main__":
    run_cases(globals(), process_sets=[ONLY_ZERO])
