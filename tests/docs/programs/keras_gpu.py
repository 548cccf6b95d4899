"""A function that gives each rank its GPU, where there is none; on PyTorch, which loads fastest."""

import os

os.environ["KERAS_BACKEND"] = "torch"
import keras  # noqa: E402 - after the choice

import horovod.keras as hvd  # noqa: E402

hvd.init()
# <- the block
use_own_gpu()  # noqa: F821 - the block's
if not keras.ops.sum(keras.ops.ones(3)) == 3:
    raise SystemExit("the backend does not add")
