"""An optimizer to wrap."""

import os

os.environ["KERAS_BACKEND"] = "torch"
import keras  # noqa: E402 - after the choice

import horovod.keras as hvd  # noqa: E402

hvd.init()
optimizer = keras.optimizers.SGD(0.1)
# <- the block
