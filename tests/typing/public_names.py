"""What a user's type checker must see through the framework modules' re-exports; `make check` runs mypy on it."""

from __future__ import annotations

import torch
from typing_extensions import assert_type

import horovod.jax
import horovod.keras
import horovod.numpy
import horovod.tensorflow
import horovod.tensorflow.mpi_ops
import horovod.torch
import horovod.torch.mpi_ops
from horovod._core.life.process_sets import ProcessSet

assert_type(horovod.jax.rank(), int)
assert_type(horovod.keras.rank(), int)
assert_type(horovod.numpy.rank(), int)
assert_type(horovod.tensorflow.rank(), int)
assert_type(horovod.tensorflow.mpi_ops.rank(), int)
assert_type(horovod.torch.rank(), int)
assert_type(horovod.torch.mpi_ops.rank(), int)
assert_type(horovod.torch.global_process_set, ProcessSet)
assert_type(horovod.numpy.barrier(), None)
assert_type(horovod.torch.local_rank(), int)


@horovod.torch.elastic.run
def train(state: horovod.torch.elastic.TorchState, epochs: int) -> float:
    return float(epochs)


@horovod.keras.elastic.run
def fit(state: horovod.keras.elastic.KerasState, epochs: int) -> str:
    return str(epochs)


def call(state: horovod.torch.elastic.TorchState, kept: horovod.keras.elastic.KerasState) -> None:
    assert_type(train(state, 1), float)
    assert_type(fit(kept, 1), str)


def optimizers(plain: torch.optim.SGD, of_keras: bytes) -> None:
    assert_type(horovod.torch.DistributedOptimizer(plain), torch.optim.SGD)
    # Keras has no types of its own: whatever goes in comes out.
    assert_type(horovod.keras.DistributedOptimizer(of_keras), bytes)
