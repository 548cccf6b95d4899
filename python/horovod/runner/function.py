"""`horovod.run`: calls a function on every rank of a new job and collects what it returns.

Used by scripts and notebooks. The function travels by cloudpickle (`shipment`); `run_task` is the program of the ranks.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Callable, Final, Optional, Union

from horovod._core.errors import InvalidArgumentError
from horovod.runner import commits, launcher_log, run_task
from horovod.runner.answers import Answers
from horovod.runner.display import standard_streams
from horovod.runner.function_call import checked
from horovod.runner.interruption import taken_signals
from horovod.runner.job import Effective, Job, effective_settings, make_job, working_directory
from horovod.runner.launchers.base import Outcome, Surroundings
from horovod.runner.launchers.choose import choose
from horovod.runner.options.job_options import values_of
from horovod.runner.processes.shipment import Shipment
from horovod.runner.restarts import run_with_restarts
from horovod.runner.showing.opening import monitored

# Parameters of `run` that are no settings of the job.
OF_THE_CALL: Final = ("func", "args", "kwargs", "executable")


def run(
    func: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Optional[Mapping[str, Any]] = None,
    num_proc: Union[int, str] = 1,
    min_num_proc: Optional[int] = None,
    max_num_proc: Optional[int] = None,
    slots: Optional[int] = None,
    reset_limit: Optional[int] = None,
    cooldown_range: Optional[Sequence[int]] = None,
    hosts: Optional[str] = None,
    hostfile: Optional[str] = None,
    host_discovery_script: Optional[str] = None,
    start_timeout: Optional[float] = None,
    ssh_port: Optional[int] = None,
    ssh_identity_file: Optional[str] = None,
    disable_cache: Optional[bool] = None,
    output_filename: Optional[str] = None,
    verbose: Optional[Union[bool, int]] = None,
    use_gloo: Optional[bool] = None,
    use_mpi: Optional[bool] = None,
    mpi_args: Optional[str] = None,
    network_interface: Optional[Union[str, Sequence[str]]] = None,
    network_interfaces: Optional[Sequence[str]] = None,
    executable: Optional[str] = None,
    np: Optional[int] = None,
    min_np: Optional[int] = None,
    max_np: Optional[int] = None,
) -> list[Any]:
    """Calls `func(*args, **kwargs)` on `num_proc` new processes, each a rank of one Horovod job.

    Args:
        func: shipped by cloudpickle, so it may be a lambda or come from a notebook.
        args, kwargs: its arguments, shipped too.
        num_proc: number of ranks, or "auto": the slots of the hosts given, else one per GPU, else one per core.
        min_num_proc, host_discovery_script: least number of ranks to go on with, and an executable that prints the
            hosts. Either makes the job elastic.
        max_num_proc, slots, reset_limit, cooldown_range: of an elastic job: most ranks, slots of hosts that are printed
            without a number, most resets, and bounds in seconds of the time for which a failed host is given up.
        hosts: hosts and slots, as `-H` of horovodrun. Exclusive with `hostfile`.
        hostfile: path of a hostfile.
        start_timeout: seconds that hosts have to answer, and the other ranks to call `hvd.init()` once a first one has.
        ssh_port, ssh_identity_file: of other hosts, as `-p` and `-i` of horovodrun.
        disable_cache: accepted for compatibility; every start checks the hosts.
        output_filename: directory that also gets each rank's output, as rank.0/stdout and rank.0/stderr.
        verbose: say what the launcher does.
        use_gloo: our own launcher and transport (the default). Exclusive with `use_mpi`.
        use_mpi, mpi_args: start with mpirun, on this machine; further words for it.
        network_interfaces: names of the interfaces for traffic between hosts.
        executable: Python interpreter of the ranks; default: this one.
        np, min_np, max_np, network_interface: deprecated names of the above.

    Returns:
        The return values, by rank; of an elastic job those of the first `min_num_proc` ranks of its last epoch.

    Raises:
        InvalidArgumentError: (also ValueError) arguments exclude one another or have a bad value; `func` cannot be
            called with `args` and `kwargs`; one of them, or a variable of `func`, cannot be pickled.
        UnsupportedError: (also NotImplementedError) something that this version cannot do.
        RuntimeError: a rank failed; the message names it and has its traceback.
    """
    given = {name: value for name, value in locals().items() if name not in OF_THE_CALL}
    return call(func, args, {} if kwargs is None else kwargs, values_of("horovod.run", given), executable)


def call(
    func: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    values: Mapping[str, Any],
    executable: Optional[str],
) -> list[Any]:
    """`run` with its options as values of settings; see there."""
    payload = checked(func, args, kwargs).payload()
    effective = effective_settings(values, "argument", os.environ)
    with launcher_log.temporarily(effective.settings, "horovod.run"):
        return _call(effective, payload, executable)


def _call(effective: Effective, payload: bytes, executable: Optional[str]) -> list[Any]:
    environ = {**os.environ, "PYTHONPATH": _python_path(os.environ.get("PYTHONPATH", ""))}
    job = make_job(effective, (executable or sys.executable, "-m", run_task.__name__), environ, working_directory())
    if job.settings.dry_run:
        raise InvalidArgumentError("horovod.run does not support dry_run: its results are wanted. Leave dry_run out.")
    launcher_log.job_begins(job)
    launcher = choose(job)
    commits.refuse_impossible(job)
    answers: dict[int, memoryview] = {}

    def run_once(job: Job) -> Outcome:
        answers.clear()
        with contextlib.closing(Shipment(payload)) as shipment, taken_signals((signal.SIGINT,)) as (fd, take):
            with monitored(job) as live:
                outcome = launcher.run(job, Surroundings(sys.stdout, sys.stderr, fd, take, shipment, live=live))
            outcome = outcome.ended_for_good(take()) if job.settings.max_restarts else outcome
        launcher_log.job_ended(outcome.exits)
        answers.update(shipment.results())
        return outcome

    standard_streams.fill()
    outcome = run_with_restarts(job, run_once, _tell)
    return Answers("horovod.run", answers).results(job, outcome)


def _tell(text: str) -> None:
    with contextlib.suppress(OSError):  # nobody reads it, which is no reason to give the job up
        sys.stderr.write(f"horovod.run: {text}\n")


def _python_path(inherited: str) -> str:
    # Last, so that it shadows nothing: makes `-m` find this package when it is used from a source tree.
    home = str(Path(__file__).resolve().parents[2])
    return os.pathsep.join([inherited, home]) if inherited else home


__all__ = ["run"]
