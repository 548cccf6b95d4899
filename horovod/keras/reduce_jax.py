"""Reducing gradients when Keras runs on JAX: one ordered host call for all of them in the compiled step.

The call copies the gradients into NumPy arrays and reduces those. It is ordered, so that the steps of all ranks keep
their order, and it is one call, because XLA neither starts independent calls in a fixed order nor all of them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Callable, Final, Optional

import jax
import numpy as np
from jax.experimental import io_callback

from horovod._core import numpy_adapter
from horovod._core.collectives import Collectives
from horovod._core.errors import InvalidArgumentError
from horovod._core.settings import from_environ
from horovod.keras.reduction import ListReducer, Reduction, ReductionSettings

__all__ = ["JaxReduction", "take_failure"]

_collectives: Final = Collectives(numpy_adapter.adapter)
# What the last failed host call raised: JAX passes on its text only.
_failures: Final[list[Exception]] = []


class JaxReduction(Reduction):
    """See `Reduction`.

    Raises:
        InvalidArgumentError: several passes per step: counting them would need state beside the optimizer's.
    """

    def __init__(self, settings: ReductionSettings) -> None:
        super().__init__(settings)
        passes = settings.options.backward_passes_per_step
        if passes > 1:
            raise InvalidArgumentError(
                f"backward_passes_per_step={passes} is not supported when Keras runs on JAX. Give the optimizer "
                f"gradient_accumulation_steps={passes} instead; gradients are then reduced in every pass."
            )

    def reduce(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        results = list(gradients)
        alone = self.settings.options.process_set.size() == 1 and not from_environ(os.environ).elastic
        if alone or not self.takes_part:
            return results
        shared = self._divide_local(results, variables)
        if not shared:
            return results
        reducer = ListReducer(_collectives, self.settings, [variables[index] for index in shared])
        sent = [results[index] for index in shared]
        forms = [jax.ShapeDtypeStruct(gradient.shape, gradient.dtype) for gradient in sent]
        for index, reduced in zip(shared, io_callback(_on_host(reducer), forms, *sent, ordered=True)):
            results[index] = reduced
        return results


def _on_host(reducer: ListReducer) -> Callable[..., list[Any]]:
    def reduce(*gradients: Any) -> list[Any]:
        try:
            return reducer([np.array(gradient, order="C") for gradient in gradients])
        except Exception as error:
            _failures[:] = [error]
            raise

    return reduce


def take_failure() -> Optional[Exception]:
    """What the last failed reduction raised, once."""
    return _failures.pop() if _failures else None
