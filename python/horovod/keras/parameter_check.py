"""`--check-parameters` for `model.fit`, whatever backend Keras runs on.

Used by the callback that broadcasts the variables, after the batches that follow: a plain optimizer is noticed too.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, Final

from horovod._core.life.process_sets import global_process_set
from horovod._core.training.parameter_check import FirstSteps, check
from horovod.keras import variables
from horovod.numpy.adapter import adapter

__all__ = ["after_batch"]

_steps: Final = FirstSteps(weakref.WeakKeyDictionary())


def after_batch(callback: Any, local: Sequence[Any]) -> None:
    """A batch after the broadcast is over: compares the model's trainable variables, if it is to be checked. Collective
    then.

    Args:
        callback: whose model is trained.
        local: variables that each rank has values of its own of, besides those that the optimizer knows.

    Raises:
        MismatchError: they differ between the ranks.
    """
    step = _steps.next(callback)
    if not step:
        return
    model = variables.synced(callback.model)
    reduction = getattr(model.optimizer, "_hvd_reduction", None)
    left_out = {id(variable) for variable in (*local, *(reduction.local_variables() if reduction else ()))}
    shared = [each for each in model.trainable_variables if not left_out & {id(each), id(getattr(each, "value", each))}]
    process_set = reduction.settings.options.process_set if reduction else global_process_set
    names = [f"{index}.{each.name}" for index, each in enumerate(shared)]
    # The first batch was before the broadcast.
    check(adapter, lambda: zip(names, variables.read(shared)), "keras", step + 1, process_set)
