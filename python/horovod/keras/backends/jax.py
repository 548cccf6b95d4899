"""Reducing gradients when Keras runs on JAX: all of them in one call of the compiled step.

On the CPU and on one GPU of NVIDIA's the core handles that call (`horovod.jax.operators`). On other devices, on several
at once, and with a compressor of the user's own it is an ordered host call, which copies the gradients into NumPy
arrays and reduces those.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable, Final, Optional

import jax
import numpy as np
from jax.experimental import io_callback

from horovod._core.errors import InvalidArgumentError
from horovod._core.life import session
from horovod._core.life.engine_port import ALLREDUCE
from horovod._core.operations.collectives import Collectives
from horovod._core.operations.described_call import DescribedOperation, TensorForm
from horovod._core.tensors.compression import NoneCompressor, kind_of
from horovod._core.training.groups import assign_groups
from horovod.jax import operators
from horovod.jax.failures import failure_in
from horovod.keras.compression import Compression
from horovod.keras.reducer import ListReducer, Reducer, ReductionSettings, groups_of, names_of
from horovod.numpy import adapter

__all__ = ["JaxReducer", "failure_behind", "forget_failure"]

_collectives: Final = Collectives(adapter.adapter)
# The exception of the last failed host call: JAX passes on only its text.
_failures: Final[list[Exception]] = []


class JaxReducer(Reducer):
    """See `Reducer`.

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
        alone = self.settings.options.process_set.size() == 1 and not session.require().settings.elastic
        if alone or not self.takes_part:
            return results
        shared = self._divide_local(results, variables)
        if not shared:
            return results
        own, sent = [variables[index] for index in shared], [results[index] for index in shared]
        together = self._in_the_core if self._core_can(sent) else self._on_the_host
        for index, reduced in zip(shared, together(sent, own)):
            results[index] = reduced
        return results

    def _core_can(self, gradients: Sequence[Any]) -> bool:
        known = kind_of(self.settings.options.compression) in (NoneCompressor, Compression.fp16, Compression.bf16)
        # A dtype that the core does not know is refused on the host, by its name.
        return known and operators.usable() and all(adapter.adapter.dtype(g) >= 0 for g in gradients)

    def _in_the_core(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """The groups, each a submission, in one call."""
        options = self.settings.options
        # Casts are traced: they ask for no more of a tensor than JAX's have.
        pairs = [options.compression.compress(gradient) for gradient in gradients]
        names = names_of(self.settings, variables)
        groups = assign_groups(range(len(pairs)), groups_of(self.settings, variables))
        grouped = {index for group in groups for index in group}
        order: list[Any] = []
        submissions = []
        for group in [*groups, *((index,) for index in range(len(pairs)) if index not in grouped)]:
            members = [_tensor_form(names[index], pairs[index][0]) for index in group]  # type: ignore[call-overload]
            order += group
            submissions.append(
                DescribedOperation(
                    ALLREDUCE, members, options.process_set.process_set_id or 0, int(options.op), options.factors
                )
            )
        results: list[Any] = [None] * len(pairs)
        for index, reduced in zip(order, operators.call(submissions, [pairs[index][0] for index in order])):
            results[index] = options.compression.decompress(reduced, pairs[index][1])
        return results

    def _on_the_host(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        reducer = ListReducer(_collectives, self.settings, variables)
        forms = [jax.ShapeDtypeStruct(gradient.shape, gradient.dtype) for gradient in gradients]
        return list(io_callback(_host_function(reducer), forms, *gradients, ordered=True))


def _tensor_form(name: str, tensor: Any) -> TensorForm:
    return TensorForm(name, adapter.adapter.dtype(tensor), tensor.shape, tensor.size * tensor.dtype.itemsize)


def _host_function(reducer: ListReducer) -> Callable[..., list[Any]]:
    def reduce(*gradients: Any) -> list[Any]:
        try:
            return reducer([np.array(gradient, order="C") for gradient in gradients])
        except Exception as error:
            _failures[:] = [error]
            raise

    return reduce


def failure_behind(error: Exception) -> Optional[Exception]:
    """The failure of a collective inside a step, if JAX raised `error` because of it; returned once."""
    if _failures:
        return _failures.pop()
    return failure_in(error)


def forget_failure() -> None:
    """Forgets the last failure."""
    _failures.clear()
