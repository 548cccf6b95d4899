"""`horovod.spark.run`: calls a function on ranks that live in the executors of a Spark application.

One barrier stage has a task for each rank. The first task of each machine runs the agent of that machine, which calls
the driver (`runner/remote/ways/by_tcp.py`); from there on the job is one of the launcher over hosts. Design 0033.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Callable, Final, Optional, TextIO, Union

from horovod._core.errors import InvalidArgumentError, UnsupportedError
from horovod._core.settings import BY_NAME
from horovod.runner import run_task
from horovod.runner.function_call import checked
from horovod.spark import session
from horovod.spark.driving import CALLER, START_TIMEOUT, Wishes, run_in
from horovod.spark.tasks import is_sparks

_START_TIMEOUT_S: Final = 600.0


def run(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] = {},  # noqa: B006 - the signature that programs know; it is only read
    num_proc: Optional[int] = None,
    start_timeout: Optional[float] = None,
    use_mpi: Optional[bool] = None,
    use_gloo: Optional[bool] = None,
    extra_mpi_args: Optional[str] = None,
    env: Optional[Mapping[str, str]] = None,
    stdout: Optional[Any] = None,
    stderr: Optional[Any] = None,
    verbose: int = 1,
    nics: Optional[Union[str, Sequence[str]]] = None,
    prefix_output_with_timestamp: bool = False,
    executable: Optional[str] = None,
) -> list[Any]:
    """Calls `fn(*args, **kwargs)` on `num_proc` processes of the executors, each a rank of one Horovod job.

    Args:
        fn: shipped by cloudpickle, so it may be a lambda or come from a notebook.
        args, kwargs: its arguments, shipped too.
        num_proc: number of ranks; default: `spark.default.parallelism`.
        start_timeout: seconds that Spark has to start all tasks; default: HOROVOD_SPARK_START_TIMEOUT, else 600.
        use_mpi, extra_mpi_args: refused: there is no MPI launcher on Spark.
        use_gloo: our own launcher and transport (the default).
        env: variables of the ranks, besides those of their executor. Those of the driver do not travel, but for the
            settings of Horovod among them.
        stdout, stderr: objects with `write` for the ranks' lines; default: those of this process.
        verbose: 0 says nothing, 1 how many ranks start, 2 what the launcher does.
        nics: names of the interfaces for traffic between hosts.
        prefix_output_with_timestamp: the time stands before each line of the ranks.
        executable: Python interpreter of the ranks; default: that of the executors' workers.

    Returns:
        The return values, by rank. The machine of task 0 has rank 0; the ranks of a machine are consecutive.

    Raises:
        InvalidArgumentError: (also ValueError) an argument has a bad value or cannot be pickled, or the application
            has too few slots.
        UnsupportedError: (also NotImplementedError) something that this version cannot do.
        RuntimeError: there is no session, Spark has ended the job, or a rank failed; the message names it and has its
            traceback.
    """
    if use_mpi or extra_mpi_args:
        raise UnsupportedError(
            f"{CALLER}: {'use_mpi' if use_mpi else 'extra_mpi_args'} is not supported: on Spark the ranks are started "
            "by Horovod's own launcher. Leave it out."
        )
    del use_gloo
    payload = checked(fn, args, kwargs, CALLER).payload(CALLER)
    given = {"network_interfaces": nics, "prefix_output_with_timestamp": prefix_output_with_timestamp or None}
    wishes = Wishes(
        payload=payload,
        patience_s=_patience_s(start_timeout, os.environ),
        values={"verbose": int(verbose) > 1, **_parsed(given)},
        env=_checked_env(env),
        command=(executable or "", "-m", run_task.__name__),
        stdout=_stream(stdout, sys.stdout),
        stderr=_stream(stderr, sys.stderr),
        is_announced=int(verbose) > 0,
    )
    ranks = _parsed({"num_proc": num_proc}).get("num_proc")
    return run_in(session.active(CALLER), None if ranks == "auto" else ranks, wishes)


def _parsed(given: Mapping[str, Any]) -> dict[str, Any]:
    shown = {"network_interfaces": "nics"}
    return {
        name: BY_NAME[name].parse(value, f"{CALLER}: {shown.get(name, name)}", coarse=True)
        for name, value in given.items()
        if value is not None
    }


def _checked_env(env: object) -> dict[str, str]:
    if env is None:
        return {}
    if not isinstance(env, Mapping):
        raise InvalidArgumentError(
            f"{CALLER}: env must be a dictionary of variables, as {{'NAME': 'value'}}. Received: {env!r}."
        )
    for name, value in env.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise InvalidArgumentError(
                f"{CALLER}: names and values of env must be texts. Received: {name!r}: {value!r}. Write str(...)."
            )
    return {name: value for name, value in env.items() if not is_sparks(name)}  # of dict(os.environ)


def _patience_s(start_timeout: Optional[float], environ: Mapping[str, str]) -> float:
    given: Any = start_timeout
    called = "start_timeout"
    if given is None:
        given, called = environ.get(START_TIMEOUT) or _START_TIMEOUT_S, START_TIMEOUT
    try:
        seconds = float(given)
    except (TypeError, ValueError):
        seconds = -1.0
    if not 0 < seconds < float("inf"):
        raise InvalidArgumentError(f"{CALLER}: {called} must be a number of seconds above 0. Received: {given!r}.")
    return seconds


class _Writing(io.TextIOBase):
    """A stream around an object that can only write."""

    def __init__(self, target: Any) -> None:
        self._target = target

    def write(self, text: str) -> int:
        self._target.write(text)
        return len(text)


def _stream(given: Any, default: TextIO) -> Any:
    if given is None:
        return default
    if not callable(getattr(given, "write", None)):
        raise InvalidArgumentError(
            f"{CALLER}: stdout and stderr must be objects that can write, such as an open file. Received: {given!r}."
        )
    return given if hasattr(given, "flush") else _Writing(given)
