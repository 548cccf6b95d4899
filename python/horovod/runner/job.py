"""One job as the launcher runs it: settings, command, places of the ranks, variables; checked once, then frozen.

Used by `cli` and `function`, which make it, and by `launchers`, which run it. It starts nothing.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from horovod._core.errors import InvalidArgumentError, UnsupportedError
from horovod._core.settings import (
    BY_NAME,
    IDENTITY_VARIABLES,
    NOTICED_VARIABLE,
    Settings,
    from_environ,
    notices,
    unknown_variables,
)
from horovod.runner import config_file, cores, flags, hosts


@dataclass(frozen=True)
class Job:
    """See the head of the file.

    Attributes:
        settings: effective values of all settings.
        command: the program and its arguments.
        slots: the place of every rank, in order of ranks.
        environ: variables of all ranks, without those that differ from rank to rank.
        cwd: working directory of the ranks.
        remarks: one sentence per setting, key or variable that has no effect.
    """

    settings: Settings
    command: tuple[str, ...]
    slots: tuple[hosts.Slot, ...]
    environ: Mapping[str, str]
    cwd: str
    remarks: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Number of ranks."""
        return len(self.slots)


class Effective(NamedTuple):
    """The settings of a job, and one sentence per key of its file that has no effect."""

    settings: Settings
    remarks: tuple[str, ...]


def effective_settings(given: Mapping[str, Any], source: str, environ: Mapping[str, str]) -> Effective:
    """Joins what was given (flags or keywords), the YAML file, the environment and the defaults, the strongest first.

    Raises:
        InvalidArgumentError: a value of the file or of the environment is wrong.
        UnsupportedError: something was asked for that this version cannot do.
    """
    from_env = from_environ({**environ, NOTICED_VARIABLE: "1"}).given()
    path = given.get("config_file")
    from_file, remarks = config_file.read(path) if path else config_file.Contents({}, [])
    if "use_gloo" in given:
        from_file.pop("controller", None)
    # The controller is chosen by flag or file only; what a surrounding job has set for its ranks is not meant.
    from_env.pop("controller", None)
    from_env.pop("elastic", None)
    _refuse_unmet(from_file, f"{path}: ")
    _refuse_unmet(given, "")
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
        InvalidArgumentError: no number of processes, no command, bad hosts, or too few slots.
        UnsupportedError: inside an LSF allocation of several hosts.
    """
    settings = effective.settings
    if not command:
        raise InvalidArgumentError("There is no command to run; write it last, as in: horovodrun -np 2 python train.py")
    if settings.hosts and settings.hostfile:
        raise InvalidArgumentError("Hosts and a hostfile were given; give one of them.")
    if settings.num_proc is None:
        raise InvalidArgumentError(_number_is_missing(command, environ))
    if not settings.hosts and not settings.hostfile:
        _refuse_allocation(environ)
    placed = _place(settings, environ)
    remarks = [*unknown_variables(environ), *effective.remarks, *notices(settings)]
    return Job(settings, tuple(command), tuple(placed), _rank_environ(settings, environ), cwd, tuple(remarks))


def _number_is_missing(command: Sequence[str], environ: Mapping[str, str]) -> str:
    if "LSB_JOBID" in environ:
        return "The number of processes is missing; give it with -np N. Learning it from LSF comes in a later version."
    index = flags.processes_in(command)
    if index is None:
        words = ("-np", "2", *command)
    else:
        words = (*command[index : index + 2], *command[:index], *command[index + 2 :])
    return (
        "The number of processes is missing; give it with -np N, before the command. Write: horovodrun "
        f"{shlex.join(words)}"
    )


def _place(settings: Settings, environ: Mapping[str, str]) -> list[hosts.Slot]:
    count, named = settings.num_proc, _hosts_named(settings)
    if count == "auto":
        count = sum(host.slots for host in named) if named else cores.automatic_ranks(environ)
    return hosts.assign(named or [hosts.Host("localhost", count)], count, count)


def _hosts_named(settings: Settings) -> list[hosts.Host]:
    if settings.hosts:
        return hosts.parse_hosts(settings.hosts)
    if settings.hostfile:
        return hosts.read_hostfile(settings.hostfile)
    return []


def _refuse_unmet(values: Mapping[str, Any], where: str) -> None:
    if values.get("controller") == "mpi":
        raise UnsupportedError(f"{where}controller mpi cannot be honoured. {BY_NAME['use_mpi'].reason}.")
    for name, value in values.items():
        setting = BY_NAME[name]
        if setting.unmet == "error" and value is not None and value is not False:
            label = setting.flags[0].names[-1] if setting.flags else setting.env
            raise UnsupportedError(f"{where}{label} cannot be honoured. {setting.reason}.")


def _refuse_allocation(environ: Mapping[str, str]) -> None:
    # Running everything here although the allocation has more hosts would look like success.
    allocated = environ.get("LSB_HOSTS", "").split()
    if "LSB_JOBID" in environ and len(set(allocated)) > 2:  # the first is the batch host
        raise UnsupportedError(
            f"This LSF allocation has {len(set(allocated))} hosts. Learning them from LSF comes in a later version; "
            "name them with -H, or use -H localhost:N to run on this host alone."
        )


def _rank_environ(settings: Settings, environ: Mapping[str, str]) -> dict[str, str]:
    inherited = {name: value for name, value in environ.items() if not _stays_behind(name)}
    inherited.update(settings.to_environ())
    # What does the work here goes by the name Gloo; wrappers read which it is.
    inherited["HOROVOD_CONTROLLER"] = "gloo"
    inherited["HOROVOD_CPU_OPERATIONS"] = "gloo"
    inherited["PYTHONUNBUFFERED"] = "1"
    inherited[NOTICED_VARIABLE] = "1"
    if settings.network_interfaces:
        joined = ",".join(settings.network_interfaces)
        inherited["NCCL_SOCKET_IFNAME"] = joined
        inherited["HOROVOD_GLOO_IFACE"] = joined
    if settings.tcp:
        inherited["NCCL_IB_DISABLE"] = "1"
    return inherited


def _stays_behind(name: str) -> bool:
    # Exported bash functions, and what a surrounding job has told its rank about itself.
    return name.startswith(("_HOROVOD_", "BASH_FUNC_")) or name in (*IDENTITY_VARIABLES, "OLDPWD", "HOROVOD_ELASTIC")
