"""Cases in which nobody has asked for a check of parameters: `fit` tells what differs all the same."""

import warnings

from keras_cases import BACKEND, compiled, fit, make_model, run_cases

import horovod.keras as hvd
from horovod.keras.installed import keras


def told(run):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run()
    return [str(each.message) for each in caught if "of an optimizer" in str(each.message)]


def trained(optimizer, model=None, *callbacks, epochs=4):
    model = compiled(optimizer, make_model(seed=hvd.rank()) if model is None else model)
    return told(lambda: fit(model, epochs=epochs, callbacks=list(callbacks)))


def broadcast(*local):
    return hvd.callbacks.BroadcastGlobalVariablesCallback(0, local_variables=list(local))


def distributed(name, **options):
    return hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), name=name, **options)


def case_a_forgotten_callback_is_told_once():
    texts = trained(distributed("forgotten"))
    # On JAX nothing of Horovod's sees the variables without it.
    assert len(texts) == (hvd.rank() == 0 and BACKEND != "jax"), texts
    for text in texts:
        assert "all 4 parameters differ" in text and "BroadcastGlobalVariablesCallback(0)" in text, text


def case_the_callback_is_silent():
    assert trained(distributed("right"), None, broadcast()) == []


def case_local_variables_may_differ():
    model = make_model(seed=hvd.rank())
    layer = model.layers[-1]
    optimizer = hvd.PartialDistributedOptimizer(keras.optimizers.SGD(0.1), name="local", local_layers=layer)
    assert trained(optimizer, model, broadcast(*layer.trainable_weights)) == []


def case_several_passes_are_silent():
    if BACKEND != "jax":
        optimizer = distributed("passes", backward_passes_per_step=2)
        assert trained(optimizer, None, broadcast(), epochs=8) == []


def case_several_passes_of_a_forgotten_callback_are_told():
    if BACKEND != "jax":
        optimizer = distributed("forgotten_passes", backward_passes_per_step=2)
        assert len(trained(optimizer, epochs=8)) == (hvd.rank() == 0)


if __name__ == "__main__":
    run_cases(globals())
