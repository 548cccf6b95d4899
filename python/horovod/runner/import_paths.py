"""The import paths of upstream's launcher below `horovod.runner`, in one table: what works is there, and
what does not exist here says what to do instead.

`horovod.runner` appends the finder, which is asked for modules that nobody else has found. Imports next to nothing.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final, Optional

from horovod._core.absent import absent_names

_PACKAGE: Final = "horovod.runner."
_PACKAGES: Final = ("common", "common.util", "util")
# Module -> its names; those that are not called so in `helpers`, as "name=where.it.is".
_NAMES: Final[dict[str, str]] = {
    "common.util.codec": "dumps_base64 loads_base64",
    "common.util.config_parser": "set_env_from_args",  # and the names of the settings' variables
    "common.util.env": "IGNORE_REGEXES get_env_rank_and_size is_exportable",
    "common.util.host_hash": "host_hash",
    "common.util.hosts": "INVALID_SLOT_INFO parse_host_files parse_hosts_and_slots HostInfo=machines.hosts.Host "
    "SlotInfo=machines.hosts.Slot get_host_assignments=machines.hosts.assign parse_hosts=machines.hosts.parse_hosts",
    "common.util.safe_shell_exec": "GRACEFUL_TERMINATION_TIME_S execute=helpers.run_to_the_end",
    "common.util.secret": "DIGEST_LENGTH_BYTES HOROVOD_SECRET_KEY check_digest compute_digest make_secret_key",
    "common.util.timeout": "Timeout TimeoutException",
    "common.util.tiny_shell_exec": "execute=helpers.run_briefly",
    "util.lsf": "LSFUtils",
    "util.network": "filter_local_addresses get_local_intfs resolve_host_address",
    "util.streams": "Pipe",
    "util.threads": "execute_function_multithreaded in_thread on_event",
}
# Module -> absent name -> what to use, as the end of "Use ...".
_ABSENT_NAMES: Final[dict[str, dict[str, str]]] = {
    "common.util.config_parser": {
        "set_args_from_config": "horovodrun --config-file, which reads the same YAML",
        "validate_config_args": "parse_args() of horovod.runner.launch, which checks each value",
    },
    "common.util.env": {"LOG_LEVEL_STR": "the words of HOROVOD_LOG_LEVEL: trace, debug, info, warning, error, fatal"},
    "common.util.safe_shell_exec": {
        "terminate_executor_shell_and_children": "execute(), with an event in `events` that stops the command"
    },
    "util.network": {
        "get_driver_ip": "localhost: all ranks run on this machine, and meet there",
        "get_local_host_addresses": "socket.getaddrinfo(socket.gethostname(), None), or get_local_intfs()",
    },
}
_NO_CONTROLLER: Final = "the launcher starts the ranks itself and has no controllers"
_NO_SERVICES: Final = "ranks are started by a keeper process, not by driver and task services"
_START_JOBS: Final = "start jobs with horovodrun or horovod.run()"

# Module or package that is absent -> (fact, remedy).
_ABSENT: Final[dict[str, tuple[str, str]]] = {
    "common.service": (_NO_SERVICES, _START_JOBS),
    "common.util.network": (
        "there are no services that exchange pickles over TCP",
        "exchange objects between ranks with hvd.broadcast_object() and hvd.allgather_object()",
    ),
    "common.util.settings": (
        "no function takes such an object",
        "give settings to horovod.run() as keywords, or to horovodrun as flags (docs/settings.md)",
    ),
    "driver": (_NO_SERVICES, _START_JOBS),
    **{
        f"elastic.{name}": ("workers ask the launcher over its own socket", "use horovodrun --min-np")
        for name in ("constants", "registration", "rendezvous", "settings", "worker")
    },
    "gloo_run": (_NO_CONTROLLER, _START_JOBS),
    "http": (
        "ranks of one host meet without a server",
        "exchange objects between ranks with hvd.broadcast_object() and hvd.allgather_object()",
    ),
    "js_run": (_NO_CONTROLLER, "start the ranks with horovodrun --jsrun, or with jsrun yourself"),
    "mpi_run": ("horovodrun itself builds the command", "start the ranks with horovodrun --mpi, or mpirun yourself"),
    "task": (_NO_SERVICES, _START_JOBS),
    "task_fn": (_NO_SERVICES, _START_JOBS),
    "util.cache": (
        "the launcher checks nothing that takes long enough to be cached",
        "leave it out; --disable-cache is accepted",
    ),
    "util.remote": (
        "the launcher starts one agent per host and runs no other commands",
        "start jobs on other hosts with horovodrun -H or horovod.run(hosts=...)",
    ),
}


class UpstreamPaths:
    """Finds and loads what the table has."""

    @staticmethod
    def find_spec(name: str, path: Optional[Sequence[str]] = None, target: Any = None) -> Optional[ModuleSpec]:
        """None for a module that the table knows nothing of.

        Raises:
            ModuleNotFoundError: the table knows that there is no such module, and why.
        """
        del path, target
        own = name[len(_PACKAGE) :] if name.startswith(_PACKAGE) else ""
        if own in _ABSENT:
            fact, remedy = _ABSENT[own]
            # Without the module's name in it: `from horovod.runner import gloo_run` would swallow an error that has it.
            raise ModuleNotFoundError(f"{name} is not in this version: {fact}. Remedy: {remedy}.")
        if own not in _NAMES and own not in _PACKAGES:
            return None
        return ModuleSpec(name, UpstreamPaths, is_package=own in _PACKAGES)  # type: ignore[arg-type]

    @staticmethod
    def create_module(spec: ModuleSpec) -> None:
        """A plain module."""

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        """Fills it in."""
        own = module.__name__[len(_PACKAGE) :]
        for word in _NAMES.get(own, "").split():
            name, _, where = word.partition("=")
            home, _, there = (where or f"helpers.{name}").rpartition(".")
            setattr(module, name, getattr(importlib.import_module(_PACKAGE + home), there))
        refuse = absent_names(module.__name__, _ABSENT_NAMES.get(own, {}))

        def __getattr__(name: str) -> str:  # noqa: N807 - becomes the module's
            if own == "common.util.config_parser":
                from horovod._core.settings import BY_ENV

                if name in BY_ENV:
                    return name
            return refuse(name)

        module.__getattr__ = __getattr__  # type: ignore[method-assign]
