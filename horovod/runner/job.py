"""One job as the launcher runs it: settings, command, places of the ranks, variables; checked once, then frozen.

Used by `cli` and `function`, which make it, and by `launchers`, which run it. It starts nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

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
from horovod.runner import config_file, hosts

_log: Final = logging.getLogger("horovod.runner")


@dataclass(frozen=True)
class Job:
    """See the head of the file.

    Attributes:
        settings: effective values of all settings.
        command: the program and its arguments.
        slots: the place of every rank, in order of ranks.
        environ: variables of all ranks, without those that differ from rank to rank.
        cwd: working directory of the ranks.
    """

    settings: Settings
    command: tuple[str, ...]
    slots: tuple[hosts.Slot, ...]
    environ: Mapping[str, str]
    cwd: str

    @property
    def size(self) -> int:
        """Number of ranks."""
        return len(self.slots)


def effective_settings(given: Mapping[str, Any], source: str, environ: Mapping[str, str]) -> Settings:
    """Joins what was given (flags or keywords), the YAML file, the environment and the defaults, the strongest first.

    Raises:
        InvalidArgumentError: a value of the file or of the environment is wrong.
        UnsupportedError: something was asked for that this version cannot do.
    """
    from_env = from_environ({**environ, NOTICED_VARIABLE: "1"}).given()
    path = given.get("config_file")
    from_file = config_file.read(path) if path else {}
    if "use_gloo" in given:
        from_file.pop("controller", None)
    # The controller is chosen by flag or file only; what a surrounding job has set for its ranks is not meant.
    from_env.pop("controller", None)
    from_env.pop("elastic", None)
    _refuse_unmet(from_file, f"{path}: ")
    _refuse_unmet(given, "")
    return Settings([("environment", from_env), (f"file {path}", from_file), (source, given)])


def make_job(settings: Settings, command: Sequence[str], environ: Mapping[str, str], cwd: str) -> Job:
    """Checks the whole and places the ranks.

    Raises:
        InvalidArgumentError: no number of processes, no command, bad hosts, or too few slots.
        UnsupportedError: inside an LSF allocation of several hosts.
    """
    if not command:
        raise InvalidArgumentError("There is no command to run; write it last, as in: horovodrun -np 2 python train.py")
    if settings.hosts and settings.hostfile:
        raise InvalidArgumentError("Hosts and a hostfile were given; give one of them.")
    if settings.num_proc is None:
        more = " Learning it from LSF comes in a later version." if "LSB_JOBID" in environ else ""
        raise InvalidArgumentError(f"The number of processes is missing; give it with -np N.{more}")
    if not settings.hosts and not settings.hostfile:
        _refuse_allocation(environ)
    placed = hosts.assign(_hosts_of(settings), settings.num_proc, settings.num_proc)
    return Job(settings, tuple(command), tuple(placed), _rank_environ(settings, environ), cwd)


def say_notices(settings: Settings, environ: Mapping[str, str]) -> None:
    """Logs what has no effect: inert hints and unknown variables. The ranks are told not to repeat it."""
    for text in unknown_variables(environ) + notices(settings):
        _log.warning("%s", text)


def _hosts_of(settings: Settings) -> list[hosts.Host]:
    if settings.hosts:
        return hosts.parse_hosts(settings.hosts)
    if settings.hostfile:
        try:
            text = Path(settings.hostfile).read_text(encoding="utf-8")
        except OSError as error:
            raise InvalidArgumentError(f"The hostfile {settings.hostfile} cannot be read: {error.strerror}.") from error
        except ValueError as error:
            raise InvalidArgumentError(f"The hostfile {settings.hostfile} is not a text file: {error}.") from error
        return hosts.parse_hostfile(text, settings.hostfile)
    return [hosts.Host("localhost", settings.num_proc)]


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
            f"This LSF allocation has {len(set(allocated))} hosts. Jobs on other hosts come in a later version; "
            "use -H localhost:N to run on this host alone."
        )


def _rank_environ(settings: Settings, environ: Mapping[str, str]) -> dict[str, str]:
    inherited = {name: value for name, value in environ.items() if not _stays_behind(name)}
    inherited.update(settings.to_environ())
    inherited["HOROVOD_CONTROLLER"] = "gloo"
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
