"""The actor that is a rank: the process in which the user's functions run, and `hvd.init()`.

`crew` makes one for each rank.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional

from horovod.ray import here, ray_logger
from horovod.ray.placing import Facts, Place


class Worker:
    """See the head of the file. Ray shows its `repr` in errors."""

    def __init__(self) -> None:
        self._title = "worker without a rank"
        self._rank = 0
        self._executable: Any = None

    def __repr__(self) -> str:
        return self._title

    def facts(self) -> Facts:
        """See `here`."""
        return here.facts()

    def meeting(self, nics: Sequence[str]) -> tuple[str, int]:
        """See `here`."""
        return here.meeting(nics)

    def place(self, place: Place) -> None:
        """Makes this process a rank, from the next `hvd.init()` on."""
        here.take(place)
        self._title = place.title
        self._rank = place.placement.rank

    def make(self, cls: Optional[type], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Makes the object that `execute` hands to functions."""
        self._executable = None if cls is None else cls(*args, **kwargs)

    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        queue: Optional[Any],
        is_for_object: bool,
        is_alone: bool = False,
    ) -> Any:
        """Calls a function. If it fails, this rank leaves the job, so that the others fail instead of waiting.

        Args:
            fn, args, kwargs: the call.
            queue: for `ray_logger`; None: there are no callbacks.
            is_for_object: the worker's object is its first argument.
            is_alone: no other rank calls the function, so a failure does not end the job.
        """
        ray_logger.configure(ray_logger.OfRank0(lambda: self._rank, queue))
        try:
            return fn(self._executable, *args, **kwargs) if is_for_object else fn(*args, **kwargs)
        except BaseException as error:
            if not is_alone:
                here.leave(error)
            raise
        finally:
            ray_logger.configure(None)
