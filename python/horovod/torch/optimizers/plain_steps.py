"""Counts the first steps of optimizers that nobody has given to `DistributedOptimizer`, for the remark at the end of a
job that has trained without reducing a gradient (`horovod._core.life.ending.unreduced`).

PyTorch's hook for all optimizers is set when a session begins whose steps are to be counted, and gone after the last of
them: a step costs nothing more then.
"""

from __future__ import annotations

from typing import Any, Final, Optional

import torch
from torch.compiler import is_compiling
from torch.optim.optimizer import register_optimizer_step_post_hook

from horovod._core.life import session
from horovod._core.life.ending.unreduced import PlainTraining

__all__ = ["watch"]

_hook: Optional[Any] = None
_training: Final = PlainTraining(
    "PyTorch's", "Write 'optimizer = hvd.DistributedOptimizer(optimizer)' and step with that one."
)


def watch() -> None:
    """From the next `hvd.init()` on."""
    session.on_begin.append(_begin)


def _begin(_: session.Session) -> None:
    global _hook
    if _hook is None and _training.wants_steps():
        _hook = register_optimizer_step_post_hook(_after_step)


def _after_step(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    global _hook
    if is_compiling():
        return
    if hasattr(optimizer, "_hvd_named_parameters"):
        _training.excuse()
    if not _training.count(type(optimizer).__name__) and _hook is not None:
        _hook.remove()
        _hook = None
