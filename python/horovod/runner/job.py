"""One job as the launcher runs it: settings, command, places of the ranks, variables; checked once, then frozen.

Used by `cli` and `function`, which make it, and by `launchers`, which run it. It starts nothing.
"""

from __future__ import annotations

import logging
import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from horovod._core.errors import InvalidArgumentError
from horovod._core.settings import (
    BY_NAME,
    IDENTITY_VARIABLES,
    NOTICED_VARIABLE,
    Settings,
    from_environ,
    label,
    notices,
    unknown_variables,
)
from horovod.runner.elastic import wishes
from horovod.runner.hosts_of_job import Hosts
from horovod.runner.machines import hosts
from horovod.runner.options import config_file, flags
from horovod.runner.options.job_options import refuse_exclusive

RESTART_VARIABLE: Final = "HOROVOD_RESTART_COUNT"
_OF_OTHERS: Final = ("OLDPWD", "HOROVOD_ELASTIC", "HOROVOD_EXPECTED_SIZE", "HOROVOD_EXPECTED_HOSTS")

_log: Final = logging.getLogger("horovod.runner")
_HOST: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*:[0-9]+")


class Job(NamedTuple):
    """See the head of the file.

    Attributes:
        settings: effective values of all settings.
        command: the program and its arguments.
        slots: the place of every rank, in order of ranks.
        environ: variables of all ranks, without those that differ from rank to rank.
        cwd: working directory of the ranks.
        remarks: one sentence per setting, key or variable that has no effect.
        restart: how often it has been started before.
        hosts: of an elastic job: where ranks may be, until a discovery script says otherwise.
    """

    settings: Settings
    command: tuple[str, ...]
    slots: tuple[hosts.Slot, ...]
    environ: Mapping[str, str]
    cwd: str
    remarks: tuple[str, ...] = ()
    restart: int = 0
    hosts: tuple[hosts.Host, ...] = ()

    @property
    def size(self) -> int:
        """Number of ranks."""
        return len(self.slots)

    def host_of(self, rank: int) -> str:
        """Where a rank was started; of one that came later, the first host."""
        return self.slots[rank if rank < self.size else 0].hostname

    def on_host(self, rank: int) -> str:
        """ " on host2", in a job of several hosts; else nothing."""
        name = self.host_of(rank)
        return f" on {name}" if any(slot.hostname != name for slot in self.slots) else ""


class Effective(NamedTuple):
    """The settings of a job, and one sentence per key of its file that has no effect."""

    settings: Settings
    remarks: tuple[str, ...]


def effective_settings(given: Mapping[str, Any], source: str, environ: Mapping[str, str]) -> Effective:
    """Joins what was given (flags or keywords), the YAML file, the environment and the defaults, the strongest first.

    Raises:
        InvalidArgumentError: a value of the file or of the environment is wrong, or two were given that exclude each
            other.
    """
    refuse_exclusive(given)
    from_env = from_environ(environ).given()
    path = given.get("config_file")
    from_file, remarks = config_file.read(path) if path else config_file.Contents({}, [])
    controller = from_file.pop("controller", None)
    is_chosen = any(flag.group == "controller" for name in given for flag in BY_NAME[name].flags)
    if controller == "mpi" and not is_chosen:
        from_file["use_mpi"] = True
    # The controller is chosen by flag or file only; what a surrounding job has set for its ranks is not meant.
    if from_env.pop("controller", None) == "mpi" and not (controller or is_chosen or environ.get(NOTICED_VARIABLE)):
        remarks.append("HOROVOD_CONTROLLER=mpi has no effect. Write --mpi to have mpirun start the ranks.")
    # As are the promises that a surrounding job was started with.
    for name in ("elastic", "expected_size", "expected_hosts"):
        from_env.pop(name, None)
    return Effective(
        Settings([("environment", from_env), (f"file {path}", from_file), (source, given)]), tuple(remarks)
    )


def working_directory() -> str:
    """Where the ranks start.

    Raises:
        InvalidArgumentError: it has been removed.
    """
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise InvalidArgumentError(
            "The working directory, in which the ranks would start, has been removed; change to another one."
        ) from None


def make_job(effective: Effective, command: Sequence[str], environ: Mapping[str, str], cwd: str) -> Job:
    """Checks the whole and places the ranks.

    Raises:
        InvalidArgumentError: no number of processes, no command, bad hosts, too few slots, or a rank was named that the
            job has not; or a scheduler's allocation that cannot be understood, where neither hosts nor a hostfile are
            given.
    """
    settings = effective.settings
    if not command:
        raise InvalidArgumentError(
            "There is no command to run; write it last, as in: horovodrun -np 2 python train.py. horovodrun -h shows "
            "the options."
        )
    if settings.hosts and _HOST.fullmatch(command[0]):
        raise InvalidArgumentError(
            f"The command {command[0]!r} looks like a host. Commas separate hosts: -H {settings.hosts},{command[0]}"
        )
    elastic = wishes.are_elastic(settings)
    given = Hosts.of(settings, environ)
    if settings.num_proc is None and given.allocation is None:
        raise InvalidArgumentError(_number_is_missing(command))
    called = "num_proc" if settings.source("num_proc") == "argument" else "-np"
    placed = given.place(settings.num_proc, environ, called)
    _refuse_missing_ranks("--ranks", settings.shown_ranks or (), len(placed))
    _refuse_missing_ranks("--stdin-rank", () if settings.stdin_rank is None else (settings.stdin_rank,), len(placed))
    known: tuple[hosts.Host, ...] = ()
    if elastic:
        settings = wishes.checked(settings, len(placed))
        known = given.known() or (hosts.Host(placed[0].hostname, len(placed)),)
    remarks = [*unknown_variables(environ), *effective.remarks, *notices(settings), *_without_mpi(settings)]
    remarks += given.remarks(len(placed))
    if given.allocation is not None:
        _log.info("%d ranks by %s", len(placed), given.allocation.words())
    return Job(
        settings, tuple(command), tuple(placed), _rank_environ(settings, environ), cwd, tuple(remarks), hosts=known
    )


def _without_mpi(settings: Settings) -> list[str]:
    """What is said to an MPI library, in a job that uses none."""
    if settings.use_mpi or settings.use_jsrun:
        return []
    meant = [name for name in ("mpi_library", "mpi_threads_disable") if getattr(settings, name)]
    return [f"{label(settings, name)} has no effect without --mpi." for name in meant]


def _number_is_missing(command: Sequence[str]) -> str:
    if command[:2] == (sys.executable, "-m"):
        command = command[1:]  # as -m of horovodrun has it
    index = flags.processes_in(command)
    if index is None and command[0].isdecimal() and len(command) > 1:
        words = ("-np", *command)
    elif index is None:
        words = ("-np", "2", *command)
    else:
        words = (*command[index : index + 2], *command[:index], *command[index + 2 :])
    return (
        "The number of processes is missing; give it with -np N, before the command. Write: horovodrun "
        f"{shlex.join(words)}"
    )


def _refuse_missing_ranks(flag: str, named: Sequence[int], size: int) -> None:
    missing = [rank for rank in named if rank >= size]
    if missing:
        raise InvalidArgumentError(f"{flag} names rank {missing[0]}, but the job has the ranks 0 to {size - 1}.")


def _rank_environ(settings: Settings, environ: Mapping[str, str]) -> dict[str, str]:
    inherited = {name: value for name, value in environ.items() if not stays_behind(name)}
    # A rank that dies of SIGSEGV tells its Python stacks.
    return {"PYTHONFAULTHANDLER": "1", **inherited, RESTART_VARIABLE: "0", **variables_of(settings)}


def variables_of(settings: Settings) -> dict[str, str]:
    """What the settings of a job set in the environment of its ranks."""
    found = settings.to_environ()
    # Wrappers read this. A job that neither mpirun nor jsrun starts is called Gloo's.
    by_mpi = settings.use_mpi or settings.use_jsrun
    found["HOROVOD_CONTROLLER"] = "mpi" if by_mpi else "gloo"
    if not by_mpi and settings.cpu_operations is None:
        found["HOROVOD_CPU_OPERATIONS"] = "gloo"
    found["PYTHONUNBUFFERED"] = "1"
    found[NOTICED_VARIABLE] = "1"
    if settings.network_interfaces:
        joined = ",".join(settings.network_interfaces)
        found["NCCL_SOCKET_IFNAME"] = joined
        found["HOROVOD_GLOO_IFACE"] = joined
    if settings.tcp:
        found["NCCL_IB_DISABLE"] = "1"
    return found


def stays_behind(name: str) -> bool:
    """The variable is no business of another job's ranks: an exported function of bash, or what a surrounding job has
    given to its rank."""
    return name.startswith(("_HOROVOD_", "BASH_FUNC_")) or name in (*IDENTITY_VARIABLES, *_OF_OTHERS)
