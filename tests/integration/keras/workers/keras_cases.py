"""Runs the cases of a worker script of this folder inside a rank, and what they have in common."""

import hashlib
import sys

import jobs.case_runner
import numpy as np
from jobs.case_runner import expect_raises

import horovod.keras as hvd
from horovod._core.operations.objects import allgather_object
from horovod.keras.installed import KERAS_2, keras

__all__ = [
    "apply",
    "arrays",
    "assert_close",
    "assert_same_everywhere",
    "compiled",
    "expect_raises",
    "fit",
    "make_model",
    "run_cases",
    "tensor",
    "variable",
]

BACKEND = keras.backend.backend()
if KERAS_2:
    import tensorflow as tf
GENERATOR = np.random.default_rng(7)
X = GENERATOR.normal(size=(64, 8)).astype("float32")
Y = GENERATOR.integers(0, 3, 64)
BATCH = 16


def run_cases(names, **init):
    assert BACKEND == "tensorflow" or "tensorflow" not in sys.modules, "importing horovod.keras imported TensorFlow"
    jobs.case_runner.run_cases(names, hvd, **init)


def make_model(seed=0):
    """A small classifier whose start depends on the seed only."""
    layers = [keras.Input((8,)), keras.layers.Dense(16, activation="tanh"), keras.layers.Dense(3)]
    model = keras.Sequential(layers)
    generator = np.random.default_rng(seed)
    for variable in model.trainable_variables:
        variable.assign(0.3 * generator.normal(size=variable.shape))
    return model


def compiled(optimizer, model=None, **options):
    model = make_model() if model is None else model
    model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True), **options)
    return model


def fit(model, share=True, epochs=2, batch=BATCH, **options):
    """Trains with this rank's share of every global batch, or with all of it."""
    own = slice(hvd.rank(), None, hvd.size()) if share else slice(None)
    size = batch // hvd.size() if share else batch
    return model.fit(X[own], Y[own], batch_size=size, shuffle=False, epochs=epochs, verbose=0, **options).history


def arrays(variables):
    read = keras.backend.get_value if KERAS_2 else keras.ops.convert_to_numpy
    return [np.array(read(variable)) for variable in variables]


def variable(values):
    return (tf.Variable if KERAS_2 else keras.Variable)(np.asarray(values, "float32"))


def tensor(values):
    values = np.asarray(values, "float32")
    return tf.constant(values) if KERAS_2 else keras.ops.convert_to_tensor(values)


def apply(optimizer, gradients, variables):
    """The step of a training loop of one's own."""
    if KERAS_2:
        optimizer.apply_gradients(zip(gradients, variables))
    else:
        optimizer.apply(gradients, variables)


def assert_close(model, other, atol=1e-5):
    for one, two in zip(arrays(model.variables), arrays(other.variables)):
        np.testing.assert_allclose(one, two, atol=atol)


def assert_same_everywhere(variables):
    """Equal bits on all ranks."""
    digest = hashlib.sha256(b"".join(array.tobytes() for array in arrays(variables))).hexdigest()
    assert len(set(allgather_object(digest))) == 1
