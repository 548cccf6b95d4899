"""Reducing gradients when Keras runs on TensorFlow: `horovod.tensorflow`'s operators, eager or in the traced step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable, Optional

import tensorflow as tf

from horovod._core.errors import InvalidArgumentError, UnsupportedError
from horovod.keras.reduction import Reduction, ReductionSettings
from horovod.tensorflow import xla
from horovod.tensorflow.aggregation import LocalGradientAggregationHelperEager
from horovod.tensorflow.gradient_reduction import GradientReduction

__all__ = ["TensorFlowReduction", "accelerated"]


class TensorFlowReduction(Reduction):
    """See `Reduction`. Several passes per step are counted in variables, so that the decision is made when the traced
    step runs."""

    def __init__(self, settings: ReductionSettings) -> None:
        super().__init__(settings)
        options = settings.options
        self._reduction = GradientReduction(
            options, *settings.devices, settings.sparse_as_dense, settings.groups, settings.scale_local
        )
        self._passes: Optional[LocalGradientAggregationHelperEager] = None
        if options.backward_passes_per_step > 1:
            if not tf.compat.v1.executing_eagerly_outside_functions():
                raise UnsupportedError(
                    "backward_passes_per_step > 1 is not supported for Keras optimizers in graphs of TensorFlow 1. Use "
                    "eager execution, or an optimizer of tf.compat.v1.train."
                )
            self._passes = LocalGradientAggregationHelperEager(
                options.backward_passes_per_step, self.reduce, settings.sparse_as_dense, settings.average_passes,
                options.process_set, settings.scale_local,
            )  # fmt: skip

    def reduce(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        _refuse_xla()
        for variable in self.local_variables():
            self._reduction.register_local(variable)
        # Numbered: layers may be numbered differently on a rank that has made more of them.
        return self._reduction.reduce(gradients, variables, self.settings.scope, numbered=True)

    def run(self, gradients: Sequence[Any], variables: Sequence[Any], apply: Callable[[list[Any]], Any]) -> Any:
        if self._passes is None:
            return super().run(gradients, variables, apply)
        _refuse_xla()
        summed = self._passes.compute_gradients(gradients, variables)
        return self._passes.apply_gradients(lambda: apply(summed))


def accelerated() -> bool:
    """True if TensorFlow computes on something other than the CPU; there XLA cannot hold Horovod's collectives."""
    return any(device.device_type != "CPU" for device in tf.config.list_logical_devices())


def _refuse_xla() -> None:
    """Said here it is understood, said by XLA it is not."""
    if xla.compiling() and accelerated():
        raise InvalidArgumentError(
            "The training step is compiled with XLA for an accelerator, where Horovod's collectives cannot run. Use "
            "model.compile(..., jit_compile=False), or add hvd.callbacks.BroadcastGlobalVariablesCallback(0) to "
            "model.fit(), which turns jit_compile off."
        )
