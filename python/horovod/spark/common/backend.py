"""Backends: who runs a function on ranks, for the estimators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Callable, Optional

from horovod.spark.running import default_ranks, run

__all__ = ["Backend", "SparkBackend"]


class Backend:
    """Runs a function on a number of ranks. Derive from it for ranks that are not Spark's."""

    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Optional[Mapping[str, Any]] = None,
        env: Optional[Mapping[str, str]] = None,
    ) -> list[Any]:
        """Calls `fn(*args, **kwargs)` on every rank; returns the results by rank."""
        raise NotImplementedError(f"{type(self).__name__} must define run.")

    def num_processes(self) -> int:
        """How many ranks `run` starts."""
        raise NotImplementedError(f"{type(self).__name__} must define num_processes.")


class SparkBackend(Backend):
    """Ranks in the executors, by `horovod.spark.run`.

    Args:
        num_proc: number of ranks; default: `spark.default.parallelism`.
        env: variables of the ranks.
        **kwargs: of `horovod.spark.run`.
    """

    def __init__(self, num_proc: Optional[int] = None, env: Optional[Mapping[str, str]] = None, **kwargs: Any) -> None:
        self._num_proc = num_proc
        self._env = env
        self._kwargs = kwargs

    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Optional[Mapping[str, Any]] = None,
        env: Optional[Mapping[str, str]] = None,
    ) -> list[Any]:
        """See `Backend`. Which GPUs a rank sees is its executor's business, so no variable of the driver says so."""
        variables = {**(self._env or {}), **(env or {})}
        variables = {name: value for name, value in variables.items() if not name.endswith("CUDA_VISIBLE_DEVICES")}
        return run(fn, args, kwargs or {}, num_proc=self.num_processes(), env=variables, **self._kwargs)

    def num_processes(self) -> int:
        """See `Backend`."""
        return self._num_proc or default_ranks("SparkBackend", self._kwargs.get("start_timeout"))
