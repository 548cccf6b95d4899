"""`HorovodRunner`, as notebooks written for Databricks use it."""

from __future__ import annotations

import io
from typing import Any, Callable, Final, Optional

from horovod._core.errors import InvalidArgumentError
from horovod.runner import run as run_here
from horovod.spark.running import run

_VERBOSITIES: Final = ("log_callback_only", "all")


class _Nowhere(io.TextIOBase):
    """Takes what is written to it, and keeps nothing."""

    def write(self, text: str) -> int:
        return len(text)


class HorovodRunner:
    """Runs a function on ranks, and returns what rank 0 has returned.

    Args:
        np: number of ranks, each in a task of Spark; 0: spark.default.parallelism. Negative: that many processes
            on the driver, where -1 is a call in this process.
        driver_log_verbosity: "all" shows the ranks' output here; "log_callback_only" only that of a rank that fails.

    Raises:
        InvalidArgumentError: one of them has no such meaning.
    """

    def __init__(self, *, np: int, driver_log_verbosity: str = _VERBOSITIES[0]) -> None:
        if isinstance(np, bool) or not isinstance(np, int):
            raise InvalidArgumentError(f"HorovodRunner: np must be an integer. Received: {np!r}.")
        if driver_log_verbosity not in _VERBOSITIES:
            raise InvalidArgumentError(
                f"HorovodRunner: driver_log_verbosity must be one of {', '.join(_VERBOSITIES)}. Received: "
                f"{driver_log_verbosity!r}."
            )
        self.num_processor = np
        self._is_shown = driver_log_verbosity == "all"

    def run(self, main: Callable[..., Any], **kwargs: Any) -> Any:
        """Calls `main(**kwargs)` on each rank; returns what it returns on rank 0."""
        np = self.num_processor
        if np == -1:
            return main(**kwargs)
        if np < 0:
            return run_here(main, kwargs=kwargs, num_proc=-np)[0]
        out: Optional[Any] = None if self._is_shown else _Nowhere()
        return run(main, kwargs=kwargs, num_proc=np or None, stdout=out, stderr=out)[0]
