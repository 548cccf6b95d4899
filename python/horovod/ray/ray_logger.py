"""`log(values)` in a worker calls the callbacks that the program has given to `RayExecutor.run`.

They are called for what rank 0 logs; other ranks may call `log` too, so that a training function needs no `if`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Final, Optional, Protocol

__all__ = ["configure", "log"]


class _Queue(Protocol):
    def put(self, item: Any) -> object: ...


class OfRank0:
    """A queue for what rank 0 logs; drops what others log.

    Args:
        rank: says which rank this process is at the time; below 0: none yet.
        queue: None: there are no callbacks.
    """

    def __init__(self, rank: Callable[[], int], queue: Optional[_Queue]) -> None:
        self._rank = rank
        self._queue = queue

    def put(self, item: Any) -> None:
        """See the class. `log` calls it, so that the warning points at the line of the user."""
        global _has_warned
        if self._rank() != 0:
            return
        if self._queue is not None:
            self._queue.put(item)
        elif not _has_warned:
            _has_warned = True
            warnings.warn(
                "ray_logger.log: this process has no callbacks to call, so the values are dropped. Give callbacks= to "
                "RayExecutor.run or execute, or call ray_logger.configure(queue).",
                stacklevel=3,
            )


_nobody: Final = OfRank0(lambda: 0, None)
_queue: _Queue = _nobody
_has_warned = False


def configure(queue: Optional[_Queue]) -> None:
    """Sends what is logged from here on to a queue; `RayExecutor` does it.

    Args:
        queue: an object with `put`; None: nobody takes it.
    """
    global _queue
    _queue = _nobody if queue is None else queue


def log(info_dict: dict[str, Any]) -> None:
    """Hands values to the callbacks of the program.

    Args:
        info_dict: values by name. They travel by Ray's pickle.
    """
    _queue.put(info_dict)
