"""A function that `horovod.run` runs, and what comes back."""

from types import SimpleNamespace

import horovod.numpy as hvd

config = SimpleNamespace(name="mine")


def train(config):
    hvd.init()
    return config.name, hvd.rank(), hvd.size()


# <- the block
if results != [("mine", rank, 4) for rank in range(4)]:  # noqa: F821 - the block's
    raise SystemExit(f"results: {results}")  # noqa: F821
