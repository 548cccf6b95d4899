"""`horovodrun`: reads the command line, runs the job, says how it ended.

Used by `__main__`, the console script. What the words mean is in `flags` and `job`; running is in
`launchers`.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Sequence
from typing import Final, Optional

import horovod
from horovod._core.errors import HorovodError, InvalidArgumentError, UnsupportedError
from horovod._core.settings import Settings
from horovod._dumps.places import signal_number
from horovod.runner import flags, standard_streams
from horovod.runner.interruption import taken_signals
from horovod.runner.job import Job, effective_settings, make_job, working_directory
from horovod.runner.launchers.base import Outcome, Surroundings
from horovod.runner.launchers.choose import choose

_USAGE: Final = 2
_LAST_WORD_S: Final = 1.0
_LEVELS: Final = {"trace": 5, "debug": 10, "info": 20, "warning": 30, "error": 40, "fatal": 50}
_log: Final = logging.getLogger("horovod.runner")


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Runs horovodrun.

    Args:
        argv: the words after the program's name; None = those of this process.

    Returns:
        The exit code: 0, the culprit's, 128 + signal when stopped by one, or 2 for a mistake on the command line.
    """
    standard_streams.fill()
    try:
        return _main(sys.argv[1:] if argv is None else argv)
    except (InvalidArgumentError, UnsupportedError) as error:
        _say(f"error: {error}")
        return _USAGE
    except (HorovodError, OSError) as error:
        _say(f"error: {error}")
        return 1


def _main(words: Sequence[str]) -> int:
    line = flags.parse(words)
    if line.version:
        sys.stdout.write(f"{horovod.__version__}\n")
        return 0
    if line.check_build:
        from horovod.runner import checks

        sys.stdout.write(checks.report(verbose=bool(line.values.get("verbose"))) + "\n")
        return 0
    effective = effective_settings(line.values, "flag", os.environ)
    _start_logging(effective.settings)
    for text in line.deprecations:
        _log.warning("%s", text)
    job = make_job(effective, line.command, os.environ, working_directory())
    _log.info("%d ranks of %s with:\n%s", job.size, job.command, effective.settings.describe(only_given=True))
    return _finish(run_job(job))


def run_job(job: Job) -> Outcome:
    """Runs a job to its end, on this process's own streams.

    Raises:
        UnsupportedError: it wants something that this version cannot do.
        InvalidArgumentError: it wants something that this machine cannot do.
    """
    launcher = choose(job)
    asks = signal_number(job.settings.dump_signal)
    taken = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP, *([asks] if asks else []))
    with taken_signals(taken) as (fd, take):
        return launcher.run(job, Surroundings(sys.stdout, sys.stderr, fd, take, dump_signal=asks))


def _finish(outcome: Outcome) -> int:
    for ended in outcome.exits:
        after_s = ended.at_s - ended.started_s
        _log.info("rank %d (pid %d) ended with code %d after %.1f s", ended.rank, ended.pid, ended.code, after_s)
    # Who stops the launcher does not want to wait for a reader that does not read.
    if outcome.closing_words and (not outcome.interrupted or standard_streams.is_read(sys.stderr, _LAST_WORD_S)):
        _say(outcome.closing_words)
    return outcome.exit_code


def _start_logging(settings: Settings) -> None:
    level = min(_LEVELS[settings.log_level], logging.INFO) if settings.verbose else _LEVELS[settings.log_level]
    time_format = "" if settings.log_hide_time else "%(asctime)s "
    logging.basicConfig(level=level, format=f"{time_format}horovodrun: %(levelname)s: %(message)s", stream=sys.stderr)


def _say(text: str) -> None:
    try:
        sys.stderr.write(f"horovodrun: {text}\n")
        sys.stderr.flush()
    except OSError:  # nobody reads it; the exit code says the rest, unless the interpreter's last flush fails again
        sys.stderr = None
