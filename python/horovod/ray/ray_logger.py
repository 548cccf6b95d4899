"""`log(values)` in a worker calls the callbacks that the program has given to `RayExecutor.run`.

They are called for what rank 0 logs; other ranks may call `log` too, so that a training function needs no `if`.
"""

from __future__ import annotations

import warnings
from typing import Any, Optional, Protocol

__all__ = ["configure", "log"]


class _Queue(Protocol):
    def put(self, item: Any) -> object: ...


_queue: Optional[_Queue] = None
_has_warned = False


def configure(queue: Optional[_Queue]) -> None:
    """Sends what is logged from here on to a queue; `RayExecutor` does it.

    Args:
        queue: an object with `put`; None: nobody takes it.
    """
    global _queue
    _queue = queue


def log(info_dict: dict[str, Any]) -> None:
    """Hands values to the callbacks of the program.

    Args:
        info_dict: values by name. They travel by Ray's pickle.
    """
    global _has_warned
    if _queue is not None:
        _queue.put(info_dict)
    elif not _has_warned:
        _has_warned = True
        warnings.warn(
            "ray_logger.log: this process has no callbacks to call, so the values are dropped. Give callbacks= to "
            "RayExecutor.run or execute, or call ray_logger.configure(queue).",
            stacklevel=2,
        )


class Nowhere:
    """A queue that drops everything."""

    def put(self, item: Any) -> None:
        """Drops it."""
