"""The launcher's log of its own work, by Python's logging: for --verbose, and `verbose` of `horovod.run`.

Used by `cli`, whose process is the launcher's own, and by `function` and `launch`, whose process is the user's.
"""

from __future__ import annotations

import contextlib
import logging
import shlex
import sys
from collections.abc import Iterator, Sequence
from typing import Final

from horovod._core.settings import PYTHON_LEVELS, Settings
from horovod.runner.job import Job
from horovod.runner.supervising.report import Exit

_log: Final = logging.getLogger("horovod.runner")


def start(settings: Settings) -> None:
    """Logs to stderr from here on, in a process that is the launcher's own."""
    logging.basicConfig(level=_level(settings), format=_format(settings, "horovodrun"), stream=sys.stderr)


@contextlib.contextmanager
def temporarily(settings: Settings, who: str) -> Iterator[None]:
    """Logs to stderr while the context lasts, if the settings ask for it and the user's logging does not show it."""
    if not settings.verbose or (_log.hasHandlers() and _log.isEnabledFor(logging.INFO)):
        yield
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(_format(settings, who)))
    level, propagate = _log.level, _log.propagate
    _log.setLevel(_level(settings))
    _log.propagate = False
    _log.addHandler(handler)
    try:
        yield
    finally:
        _log.removeHandler(handler)
        _log.propagate = propagate
        _log.setLevel(level)


def job_begins(job: Job) -> None:
    """Logs what will run, and with which settings."""
    size, command = f"{job.size} rank{'s' * (job.size > 1)}", shlex.join(job.command)
    _log.info("%s of %s, with:\n%s", size, command, job.settings.describe(only_given=True))


def job_ended(exits: Sequence[Exit]) -> None:
    """Logs how each rank has ended."""
    for ended in exits:
        after_s = ended.at_s - ended.started_s
        who = f"rank {ended.rank} ({ended.hostname}, pid {ended.pid})"
        _log.info("%s ended with code %d after %.1f s", who, ended.code, after_s)


def _level(settings: Settings) -> int:
    level = PYTHON_LEVELS[settings.log_level]
    return min(level, logging.INFO) if settings.verbose else level


def _format(settings: Settings, who: str) -> str:
    time_format = "" if settings.log_hide_time else "%(asctime)s "
    return f"{time_format}{who}: %(levelname)s: %(message)s"
