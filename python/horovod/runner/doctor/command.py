"""`horovodrun doctor` and `python -m horovod doctor`: one page to read, or to paste into a bug report.

Used by `cli` and by `horovod.__main__`. Exit code 1 when the page names a problem, 2 for words that it does not know.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, Optional

import horovod
from horovod._core.errors import HorovodError, InvalidArgumentError
from horovod._core.settings import Settings
from horovod.runner.display import standard_streams
from horovod.runner.doctor import choices, gpus, machine, network, page, software
from horovod.runner.doctor.examination import examine
from horovod.runner.doctor.findings import Probe
from horovod.runner.job import effective_settings

WORD: Final = "doctor"
_JSON: Final = "--json"
_QUICK_S: Final = 10.0
_CORE_S: Final = 65.0  # its own deadline is 60
_MPI_S: Final = 90.0  # seven children at most


def main(words: Sequence[str], given: Optional[Mapping[str, Any]] = None) -> int:
    """Looks at this machine and prints the page.

    Args:
        words: that follow "doctor": nothing, or --json.
        given: values of settings by flags, as they would stand before a job's command.

    Raises:
        InvalidArgumentError: another word.
    """
    unknown = [word for word in words if word != _JSON]
    if unknown:
        raise InvalidArgumentError(
            f"doctor does not accept {unknown[0]!r}. Write: horovodrun doctor [--json]; flags of a job, such as -H, "
            "come before the word doctor."
        )
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    sections = examine(probes(given or {}, os.environ))
    render = page.as_json if words else page.text
    standard_streams.write(sys.stdout, render(horovod.__version__, when, sections) + "\n")
    return 1 if page.faults(sections) else 0


def probes(given: Mapping[str, Any], environ: Mapping[str, str]) -> list[Probe]:
    """All of them, in the order of the page."""
    settings, of_settings = _settings(given, environ)
    return [
        Probe("System", machine.system, _QUICK_S),
        Probe("Core", software.core, _CORE_S),
        Probe("Frameworks", partial(software.frameworks, environ), software.FRAMEWORK_S + _QUICK_S),
        Probe("Processor", partial(machine.processor, environ), _QUICK_S),
        Probe("GPUs", partial(gpus.look, environ), gpus.LIMIT_S),
        Probe("Shared memory", machine.shared_memory, _QUICK_S),
        Probe("Limits", machine.user_limits, _QUICK_S),
        Probe("Network", partial(network.interfaces, settings), _QUICK_S),
        Probe("ssh", partial(network.ssh, settings, environ), network.limit_s(settings)),
        Probe("MPI", partial(software.mpi, environ), _MPI_S),
        Probe("Launcher", partial(choices.launcher, environ), _QUICK_S),
        of_settings,
    ]


def _settings(given: Mapping[str, Any], environ: Mapping[str, str]) -> tuple[Settings, Probe]:
    """The settings in force, or the defaults where one is wrong; and the probe that tells of them."""
    try:
        found = effective_settings(given, "flag", environ)
    except HorovodError as error:
        return Settings(), Probe("Settings", partial(choices.unreadable, str(error)), _QUICK_S)
    return found.settings, Probe(
        "Settings", partial(choices.effective, found.settings, found.remarks, environ), _QUICK_S
    )
