"""Which launcher runs a job: the first of a list that can.

Used by `cli` and `function`. The list has names, not classes: what runs a job on this machine does not wait until the
parts for other hosts are loaded.
"""

from __future__ import annotations

import importlib
import logging
from typing import Final, NamedTuple

from horovod._core.errors import UnsupportedError
from horovod.runner.job import Job
from horovod.runner.launchers.base import Launcher

_log: Final = logging.getLogger("horovod.runner")


class Entry(NamedTuple):
    """One launcher.

    Attributes:
        name: in messages.
        module, class_name: where it is.
        asked_by: the setting that asks for it: if that is on, only this launcher is considered, else this one is not.
            Empty: there is none.
    """

    name: str
    module: str
    class_name: str
    asked_by: str = ""

    def load(self) -> Launcher:
        """The launcher itself."""
        made: Launcher = getattr(importlib.import_module(self.module), self.class_name)()
        return made


ENTRIES: Final = (
    Entry("by mpirun", "horovod.runner.launchers.mpirun", "MpirunLauncher", "use_mpi"),
    Entry("by jsrun", "horovod.runner.launchers.jsrun", "JsrunLauncher", "use_jsrun"),
    Entry("elastic", "horovod.runner.launchers.elastic", "ElasticLauncher", "elastic"),
    Entry("on this machine", "horovod.runner.launchers.local", "LocalLauncher"),
    Entry("over ssh", "horovod.runner.launchers.over_hosts", "HostsLauncher"),
)


def choose(job: Job) -> Launcher:
    """The first launcher that can run the job. Logs options that have no effect here; the
    ranks do not repeat it.

    Raises:
        UnsupportedError: there is none; the message has a reason for each.
        InvalidArgumentError: something that was asked for cannot be done here.
    """
    reasons = []
    asked = [entry for entry in ENTRIES if entry.asked_by and getattr(job.settings, entry.asked_by)]
    for entry in asked or (entry for entry in ENTRIES if not entry.asked_by):
        launcher = entry.load()
        reason = launcher.why_not(job)
        if not reason:
            for text in (*job.remarks, *launcher.remarks(job)):
                _log.warning("%s", text)
            return launcher
        # A reason that names its flag says by itself which launcher it is about.
        name = f"{entry.name[0].upper()}{entry.name[1:]}"
        reasons.append(reason if reason.startswith("--") else f"{name}: {reason}")
    raise UnsupportedError(f"The job cannot be started. {' '.join(reasons)}")
