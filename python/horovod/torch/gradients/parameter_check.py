"""`--check-parameters` for optimizers of PyTorch: those that combine gradients, and plain ones, which may be so by
mistake.

Used by `distributed_methods` and `adasum_optimizer` at the end of a step. Plain optimizers are watched by PyTorch's
hook for all of them, which is only set where the check is wanted.
"""

from __future__ import annotations

import weakref
from typing import Any, Final

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from horovod._core.errors import InvalidArgumentError
from horovod._core.life.process_sets import global_process_set
from horovod._core.settings import of_this_process
from horovod._core.training.ordinals import Ordinals
from horovod._core.training.parameter_check import FirstSteps, check
from horovod.torch.adapter import adapter

__all__ = ["after_step", "watch_plain_optimizers"]

_steps: Final = FirstSteps(weakref.WeakKeyDictionary())
_plain_steps: Final = FirstSteps(weakref.WeakKeyDictionary())
_numbers: Final = Ordinals(weakref.WeakKeyDictionary())


def after_step(optimizer: Any) -> None:
    """A distributed optimizer has stepped: compares its parameters, if this step is to be checked. Collective then.

    Raises:
        MismatchError: they differ between the ranks.
    """
    step = _steps.next(optimizer)
    if step:
        name = optimizer._names.engine_name("distributed")
        check(adapter, optimizer._hvd_named_parameters, name, step, optimizer.process_set)


def watch_plain_optimizers() -> None:
    """Has plain optimizers checked too, if that is wanted."""
    try:
        is_wanted = (of_this_process().check_parameters or 0) > 0
    except InvalidArgumentError:  # of any setting: init will say so
        return
    if is_wanted:
        register_optimizer_step_post_hook(_after_plain_step)


def _after_plain_step(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    if hasattr(optimizer, "_hvd_named_parameters"):
        return  # a distributed one: what it steps may still be combined
    step = _plain_steps.next(optimizer)
    if step:
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        named = [(f"parameter {index} of {type(optimizer).__name__}", each) for index, each in enumerate(parameters)]
        check(adapter, lambda: named, f"plain.{_numbers.of(optimizer)}", step, global_process_set)
