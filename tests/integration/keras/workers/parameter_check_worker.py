"""Cases of --check-parameters 2 with `fit`: a plain optimizer is told after the batch that follows the broadcast."""

from keras_cases import arrays, compiled, expect_raises, fit, make_model, run_cases

import horovod.keras as hvd
from horovod._core.errors import MismatchError
from horovod._core.operations.objects import allgather_object
from horovod.keras.installed import keras


def broadcast(*local):
    return hvd.callbacks.BroadcastGlobalVariablesCallback(0, local_variables=list(local))


def case_what_is_done_right_is_left_alone():
    model = compiled(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), make_model(seed=hvd.rank()))
    fit(model, callbacks=[broadcast()])


def case_a_plain_optimizer_is_told():
    model = compiled(keras.optimizers.SGD(0.1))
    words = "After step 2 of an optimizer all 4 parameters differ between the ranks: '0."
    expect_raises(MismatchError, lambda: fit(model, callbacks=[broadcast()]), words)


def case_local_variables_may_differ():
    model = make_model(seed=hvd.rank())
    layer = model.layers[-1]
    optimizer = hvd.PartialDistributedOptimizer(keras.optimizers.SGD(0.1), local_layers=layer)
    fit(compiled(optimizer, model), callbacks=[broadcast(*layer.trainable_weights)])
    different = allgather_object(arrays(layer.trainable_weights)[0].tolist())
    assert different[0] != different[1]


if __name__ == "__main__":
    run_cases(globals())
