"""Import paths of upstream's launcher that do not exist here: the error says what to do instead.

`horovod.runner` appends the finder, which is asked for modules that nobody else has found. Imports next to nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Optional

_PACKAGE: Final = "horovod.runner."
_NO_CONTROLLER: Final = "the launcher starts the ranks itself and has no controllers"
_NO_SERVICES: Final = "ranks are started by a keeper process, not by driver and task services"
_START_JOBS: Final = "start jobs with horovodrun or horovod.run()"

# Module or package -> (fact, remedy).
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


class AbsentModules:
    """A finder that finds nothing, and says what to do instead."""

    @staticmethod
    def find_spec(name: str, path: Optional[Sequence[str]] = None, target: Any = None) -> None:
        """None for a module that it knows nothing of.

        Raises:
            ModuleNotFoundError: it knows that there is no such module, and why.
        """
        del path, target
        known = _ABSENT.get(name[len(_PACKAGE) :]) if name.startswith(_PACKAGE) else None
        if known is not None:
            # Without the module's name in it: `from horovod.runner import gloo_run` would swallow an error that has it.
            raise ModuleNotFoundError(f"{name} is not in this version: {known[0]}. Remedy: {known[1]}.")
