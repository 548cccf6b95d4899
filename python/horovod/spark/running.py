"""`horovod.spark.run` and `run_elastic`: call a function on ranks that live in the executors of a Spark application.

A stage has a task for each rank. Each calls the driver (`runner/remote/ways/by_tcp.py`), and one of each machine runs
its agent; from there on the job is one of the launcher over hosts, or of that of elastic jobs. Design 0033.
"""

from __future__ import annotations

import io
import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Callable, Final, NamedTuple, Optional, TextIO, Union

from horovod._core.errors import InvalidArgumentError, UnsupportedError
from horovod._core.settings import BY_NAME
from horovod.runner import run_task
from horovod.runner.function_call import checked
from horovod.spark import session
from horovod.spark.driving import START_TIMEOUT, Wishes, run_in
from horovod.spark.slots import Asked, Numbers, elastic_numbers
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
    caller = "horovod.spark.run"
    if use_mpi or extra_mpi_args:
        raise UnsupportedError(
            f"{caller}: {'use_mpi' if use_mpi else 'extra_mpi_args'} is not supported: on Spark the ranks are started "
            "by Horovod's own launcher. Leave it out."
        )
    del use_gloo
    values = {"network_interfaces": nics, "prefix_output_with_timestamp": prefix_output_with_timestamp or None}
    where = _Streams(stdout, stderr, int(verbose))
    wishes = _wishes(caller, checked(fn, args, kwargs, caller).payload(caller), start_timeout, values, env, where)
    ranks = _parsed(caller, {"num_proc": num_proc}).get("num_proc")
    spark = session.active(caller)
    wishes = wishes._replace(command=(executable or "", *wishes.command[1:]))
    return run_in(spark, lambda default: Numbers.fixed(default() if ranks in (None, "auto") else ranks), wishes)


def run_elastic(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] = {},  # noqa: B006 - as above
    num_proc: Optional[int] = None,
    min_num_proc: Optional[int] = None,
    max_num_proc: Optional[int] = None,
    start_timeout: Optional[float] = None,
    elastic_timeout: Optional[float] = None,
    reset_limit: Optional[int] = None,
    env: Optional[Mapping[str, str]] = None,
    stdout: Optional[Any] = None,
    stderr: Optional[Any] = None,
    verbose: int = 1,
    nics: Optional[Union[str, Sequence[str]]] = None,
    prefix_output_with_timestamp: bool = False,
    min_np: Optional[int] = None,
    max_np: Optional[int] = None,
) -> list[Any]:
    """Calls `fn(*args, **kwargs)` on ranks that come and go with the executors: an elastic job (docs/elastic.md), whose
    function keeps its state with `hvd.elastic.run`.

    Args:
        fn, args, kwargs, env, stdout, stderr, verbose, nics, prefix_output_with_timestamp: as of `run`.
        num_proc: how many tasks must run before the job begins, with all that run by then; default:
            `spark.default.parallelism`, within the other two.
        min_num_proc: least number to go on with; default: what `spark.dynamicAllocation.minExecutors` has room for,
            where dynamic allocation is on, else `num_proc`.
        max_num_proc: most ranks; default: what `spark.dynamicAllocation.maxExecutors` has room for, else `num_proc`.
        start_timeout: seconds that Spark has to start `num_proc` tasks; default: HOROVOD_SPARK_START_TIMEOUT, else 600.
        elastic_timeout: seconds to wait for enough ranks after some were lost; default: HOROVOD_ELASTIC_TIMEOUT, else
            600.
        reset_limit: most resets; default: any number.
        min_np, max_np: deprecated names.

    Returns:
        The return values of the ranks of the last epoch, by rank.

    Raises:
        InvalidArgumentError: (also ValueError) as of `run`, or the numbers contradict one another.
        RuntimeError: there is no session, Spark has ended the job, too few ranks were left, or a rank failed by an
            error of its own; the message names it and has its traceback.
    """
    caller = "horovod.spark.run_elastic"
    numbers = {"num_proc": num_proc, "min_num_proc": min_num_proc, "max_num_proc": max_num_proc}
    for old, new, value in (("min_np", "min_num_proc", min_np), ("max_np", "max_num_proc", max_np)):
        if value is not None:
            warnings.warn(f"{caller}: {old} is deprecated; use {new}.", DeprecationWarning, stacklevel=2)
            numbers[new] = value if numbers[new] is None else numbers[new]
    values = {
        "network_interfaces": nics,
        "prefix_output_with_timestamp": prefix_output_with_timestamp or None,
        "elastic_timeout_s": elastic_timeout,
        "reset_limit": reset_limit,
    }
    where = _Streams(stdout, stderr, int(verbose))
    wishes = _wishes(caller, checked(fn, args, kwargs, caller).payload(caller), start_timeout, values, env, where)
    parsed = _parsed(caller, numbers)
    first = parsed.get("num_proc")
    asked = Asked(None if first == "auto" else first, parsed.get("min_num_proc"), parsed.get("max_num_proc"))
    spark = session.active(caller)
    return run_in(spark, lambda default: elastic_numbers(caller, asked, spark.conf, default), wishes)


def default_ranks(caller: str, start_timeout: Optional[float] = None) -> int:
    """How many ranks `run` starts where it is not given a number.

    Args:
        caller: for messages.
        start_timeout: see `run`.

    Raises:
        RuntimeError: there is no session, or it does not say so in time.
    """
    return session.active(caller).default_tasks(caller, _patience_s(caller, start_timeout, os.environ))


class _Streams(NamedTuple):
    """What is said, and where."""

    stdout: Optional[Any]
    stderr: Optional[Any]
    verbose: int


def _wishes(
    caller: str,
    payload: bytes,
    start_timeout: Optional[float],
    values: Mapping[str, Any],
    env: object,
    where: _Streams,
) -> Wishes:
    return Wishes(
        caller=caller,
        payload=payload,
        patience_s=_patience_s(caller, start_timeout, os.environ),
        values={"verbose": where.verbose > 1, **_parsed(caller, values)},
        env=_checked_env(caller, env),
        command=("", "-m", run_task.__name__),
        stdout=_stream(caller, where.stdout, sys.stdout),
        stderr=_stream(caller, where.stderr, sys.stderr),
        is_announced=where.verbose > 0,
    )


def _parsed(caller: str, given: Mapping[str, Any]) -> dict[str, Any]:
    shown = {"network_interfaces": "nics", "elastic_timeout_s": "elastic_timeout"}
    return {
        name: BY_NAME[name].parse(value, f"{caller}: {shown.get(name, name)}", coarse=True)
        for name, value in given.items()
        if value is not None
    }


def _checked_env(caller: str, env: object) -> dict[str, str]:
    if env is None:
        return {}
    if not isinstance(env, Mapping):
        raise InvalidArgumentError(
            f"{caller}: env must be a dictionary of variables, as {{'NAME': 'value'}}. Received: {env!r}."
        )
    for name, value in env.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise InvalidArgumentError(
                f"{caller}: names and values of env must be texts. Received: {name!r}: {value!r}. Write str(...)."
            )
    return {name: value for name, value in env.items() if not is_sparks(name)}  # of dict(os.environ)


def _patience_s(caller: str, start_timeout: Optional[float], environ: Mapping[str, str]) -> float:
    given: Any = start_timeout
    called = "start_timeout"
    if given is None:
        given, called = environ.get(START_TIMEOUT) or _START_TIMEOUT_S, START_TIMEOUT
    try:
        seconds = float(given)
    except (TypeError, ValueError):
        seconds = -1.0
    if not 0 < seconds < float("inf"):
        raise InvalidArgumentError(f"{caller}: {called} must be a number of seconds above 0. Received: {given!r}.")
    return seconds


class _Writing(io.TextIOBase):
    """A stream around an object that can only write."""

    def __init__(self, target: Any) -> None:
        self._target = target

    def write(self, text: str) -> int:
        self._target.write(text)
        return len(text)


def _stream(caller: str, given: Any, default: TextIO) -> Any:
    if given is None:
        return default
    if not callable(getattr(given, "write", None)):
        raise InvalidArgumentError(
            f"{caller}: stdout and stderr must be objects that can write, such as an open file. Received: {given!r}."
        )
    return given if hasattr(given, "flush") else _Writing(given)
