"""Fits with an optimizer that is plain, or is not if an argument says so, for the remark at the job's end."""

import sys

import numpy as np
from keras_cases import make_model

import horovod.keras as hvd
from horovod.keras.installed import keras

hvd.init()
model = make_model()
optimizer = keras.optimizers.SGD(0.01)
distributed = hvd.DistributedOptimizer(keras.optimizers.SGD(0.01))
model.compile(distributed if "distributed" in sys.argv else optimizer, "mse")
features, targets = np.ones((110, 8), "float32"), np.ones((110, 3), "float32")
model.fit(features, targets, batch_size=1, verbose=0, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
