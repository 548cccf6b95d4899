"""Counts the batches of `fit` whose model has a plain optimizer, for the remark at the end of a job that has trained
without reducing a gradient (`horovod._core.life.ending.unreduced`).

Used by the callback that broadcasts the variables: a program that has it means its ranks to train one model.
"""

from __future__ import annotations

import sys
from typing import Any, Final

from horovod._core.life.ending.unreduced import PlainTraining
from horovod.keras.installed import keras
from horovod.keras.optimizer import is_distributed

__all__ = ["PlainBatches"]

_training: Final = PlainTraining(
    "Keras'", "Give model.compile the optimizer that hvd.DistributedOptimizer(optimizer) returns."
)


class PlainBatches:
    """Of one callback."""

    def __init__(self) -> None:
        self._counts = True

    def after(self, model: Any) -> None:
        """A batch after the broadcast is over."""
        if not self._counts:
            return
        if is_distributed(model.optimizer) or _is_spread(model):
            _training.excuse()
        self._counts = _training.wants_steps() and _training.count(type(model.optimizer).__name__)


def _is_spread(model: Any) -> bool:
    """True if Keras or JAX may combine this model's gradients."""
    distribution = getattr(keras, "distribution", None)
    if distribution is not None and distribution.distribution() is not None:
        return True
    strategy = getattr(model, "distribute_strategy", None)  # of TensorFlow
    if getattr(strategy, "num_replicas_in_sync", 1) > 1:
        return True
    jax = sys.modules.get("jax")
    return keras.backend.backend() == "jax" and jax is not None and bool(jax.process_count() > 1)
