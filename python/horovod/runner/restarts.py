"""`--max-restarts`: the whole job once more after a failure, and how often it may be.

Used by `cli` and `function`. Each start is a job of its own, with a secret, a directory and a meeting of its own;
the ranks learn from HOROVOD_RESTART_COUNT which it is. What is worth keeping from one to the next is the script's to
save.
"""

from __future__ import annotations

import time
from typing import Callable, Final

from horovod.runner.backoff import pause_before
from horovod.runner.job import RESTART_VARIABLE, Job
from horovod.runner.launchers.base import Outcome

_CANNOT_BE_EXECUTED: Final = 126


def run_with_restarts(
    job: Job,
    run: Callable[[Job], Outcome],
    tell: Callable[[str], None],
    sleep: Callable[[float], None] = time.sleep,
) -> Outcome:
    """Runs the job, and again while it fails and may be restarted.

    Args:
        job: for the first time.
        run: to its end.
        tell: takes what is to be said before each restart.
        sleep: waits; a signal ends the wait as it ends any other.

    Returns:
        How the last start ended.
    """
    most: int = job.settings.max_restarts
    for count in range(most):
        outcome = run(again(job, count))
        if not worth_another(outcome):
            return outcome
        pause_s = pause_before(count + 1)
        after = f" in {pause_s:.0f} s" if pause_s else ""
        tell(outcome.closing_words)
        tell(f"all ranks are started again{after} (restart {count + 1} of {most}).")
        sleep(pause_s)
    return run(again(job, most))


def again(job: Job, count: int) -> Job:
    """The job as it is started for the `count`th time after the first."""
    environ = {**job.environ, RESTART_VARIABLE: str(count)}
    return job._replace(environ=environ, restart=count)


def worth_another(outcome: Outcome) -> bool:
    """It has failed, nobody wanted that, and it need not fail the same way again."""
    cannot_run = bool(outcome.complaint) and outcome.complaint_code == _CANNOT_BE_EXECUTED
    return outcome.exit_code != 0 and not outcome.interrupted and not cannot_run
