"""Elastic training with NumPy: the retry loop and object state of `horovod._core.training.elastic`, bound to this
module's operations."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np

from horovod._core.life import context
from horovod._core.operations.objects import broadcast_object
from horovod._core.training.elastic import snapshot, state
from horovod._core.training.elastic.loop import F, reset_engine, run_fn

__all__ = ["ObjectState", "run"]


class ObjectState(state.ObjectState):
    """Picklable attributes that survive a failure or a change of hosts; arrays among them too.

    Args:
        **kwargs: each becomes an attribute.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(bcast_object=broadcast_object, get_rank=context.rank, **kwargs)


def run(func: F) -> F:
    """Decorator of a training function whose first argument is a state: runs it again after a failure or a change of
    hosts."""
    return run_fn(func, reset_engine)


def _copied(array: np.ndarray[Any, Any], old: Any) -> Optional[tuple[Any, None]]:
    """At once: NumPy has no copy on write. See `snapshot.register`."""
    if array.dtype.hasobject:
        return None
    fits = isinstance(old, np.ndarray) and (old.shape, old.dtype) == (array.shape, array.dtype)
    kept = old if fits else np.empty_like(array)
    np.copyto(kept, array)
    return kept, None


snapshot.register(np.ndarray, _copied)
