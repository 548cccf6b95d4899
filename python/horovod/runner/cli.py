"""`horovodrun`: reads the command line, runs the job, says how it ended.

Used by `__main__`, the console script. What the words mean is in `flags` and `job`; running is in
`launchers`.
"""

from __future__ import annotations

import functools
import logging
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from typing import Final, Optional

import horovod
from horovod._core.errors import HorovodError, InvalidArgumentError, UnsupportedError
from horovod._core.settings import Settings
from horovod._dumps.paths import signal_number
from horovod.runner import commits, launcher_log
from horovod.runner.display import standard_streams
from horovod.runner.interruption import taken_signals
from horovod.runner.job import Job, effective_settings, make_job, working_directory
from horovod.runner.launchers.base import Launcher, Outcome, Surroundings
from horovod.runner.launchers.choose import choose
from horovod.runner.options import flags
from horovod.runner.showing.opening import monitored

_USAGE: Final = 2
_WORDS: Final = ("doctor", "help")
_LAST_WORD_S: Final = 1.0
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
        from horovod.runner.doctor import checks

        sys.stdout.write(checks.report(verbose=bool(line.values.get("verbose"))) + "\n")
        return 0
    if line.status:
        _refuse_beside_status(line)
        from horovod.runner.showing import status

        return status.show(as_json=line.values.get("status_format") == "json")
    word = line.command[0] if line.command else ""
    if word in _WORDS and not ("num_proc" in line.values and _is_a_program(word)):
        if word == "help":
            sys.stdout.write(flags.parser().format_help())
            return 0
        from horovod.runner.doctor.command import main as doctor

        return doctor(line.command[1:], line.values)
    effective = effective_settings(line.values, "flag", os.environ)
    launcher_log.start(effective.settings)
    for text in line.deprecations:
        _log.warning("%s", text)
    job = make_job(effective, line.command, os.environ, working_directory())
    launcher_log.job_begins(job)
    from horovod.runner.processes import orphans  # ctypes is needed only where a job starts

    orphans.adopt()
    return _finish(run_job(job), job.settings)


def _refuse_beside_status(line: flags.CommandLine) -> None:
    given = shlex.join(line.command) if line.command else "-np" if "num_proc" in line.values else ""
    if given:
        raise InvalidArgumentError(
            f"--status shows the jobs that run and starts none, but {given} was given. To start a job, leave --status "
            "out; then run horovodrun --status in another terminal."
        )


def _is_a_program(word: str) -> bool:
    import shutil  # not before one of our words is meant

    return shutil.which(word) is not None


def run_job(job: Job) -> Outcome:
    """Runs a job to its end, on this process's own streams, as often as it may be started; or says what it would do.

    Raises:
        UnsupportedError: it wants something that this version cannot do.
        InvalidArgumentError: it wants something that this machine cannot do.
    """
    launcher = choose(job)
    if job.settings.dry_run:
        from horovod.runner.plan import plan

        standard_streams.write(sys.stdout, plan(job, launcher.stations(job), os.environ) + "\n")
        return Outcome(())
    commits.refuse_impossible(job)
    if not job.settings.max_restarts:
        return _run_once(launcher, job)
    from horovod.runner.restarts import run_with_restarts

    asks = signal_number(job.settings.dump_signal)
    with taken_signals([asks] if asks else []):  # between two starts nobody can dump, which is no reason to die of it
        return run_with_restarts(job, functools.partial(_run_once, launcher), _say)


def _run_once(launcher: Launcher, job: Job) -> Outcome:
    asks = signal_number(job.settings.dump_signal)
    taken = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP, *([asks] if asks else []))
    with taken_signals(taken) as (fd, take):
        with monitored(job) as live:
            outcome = launcher.run(job, Surroundings(sys.stdout, sys.stderr, fd, take, dump_signal=asks, live=live))
        late = [number for number in take() if number not in (signal.SIGTSTP, asks)]
    return outcome.ended_for_good(late) if job.settings.max_restarts else outcome


def _finish(outcome: Outcome, settings: Settings) -> int:
    launcher_log.job_ended(outcome.exits)
    # A user who stops the launcher does not want to wait for a reader that does not read.
    if outcome.closing_words and (not outcome.interrupted or standard_streams.is_read(sys.stderr, _LAST_WORD_S)):
        _say(outcome.closing_words)
    wanted, terminal = settings.summary, standard_streams.is_terminal(sys.stderr)
    ended_well = bool(outcome.exits) and not outcome.closing_words
    if ended_well and (wanted or (settings.verbose or terminal) and wanted is not False):
        from horovod.runner.summary import summary

        _say(summary(outcome.exits))
    if outcome.rows and (wanted or (wanted is None and ended_well and terminal)):
        from horovod.runner.live.pages import closing_lines

        for text in closing_lines(outcome.rows):
            _say(text)
    return outcome.exit_code


def _say(text: str) -> None:
    try:
        sys.stderr.write(f"horovodrun: {text}\n")
        sys.stderr.flush()
    except OSError:  # nobody reads it; the exit code says the rest, unless the interpreter's last flush fails again
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - as long as the process: a restart may follow
