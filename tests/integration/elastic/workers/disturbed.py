"""Runs a training script as it is, but for one fault: `disturbed.py SCRIPT ARGUMENTS...`.

Rank 0 is killed some milliseconds after its commit number TEST_KILL_AT, in the middle of whatever it does then. The
others make ALONE commits without it, then wait until they are as many again, so that the rest of the training has grown
back. With TEST_KILL_ALL all ranks are killed there, once a commit is on the disk, in the job's first life. Every rank
reports each epoch that it takes part in, and how far the durable commit is that it begins with. Without TEST_KILL_AT
nothing happens.
"""

import os
import runpy
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from jobs.report import report

from horovod._core.life import context, membership
from horovod._core.training.elastic.state import State

KILL_AT = int(os.environ.get("TEST_KILL_AT", "0"))
KILL_ALL = "TEST_KILL_ALL" in os.environ
DURABLE = Path(os.environ.get("HOROVOD_ELASTIC_COMMIT_DIR", ""))
FIRST_LIFE = os.environ.get("HOROVOD_RESTART_COUNT", "0") == "0"
KILL_AFTER_S = 0.005
SIZE = int(os.environ["TEST_SIZE"])
ALONE = 3
PATIENCE_S = 100

commit, take_durable = State.commit, State.take_durable
commits: Counter = Counter()  # by epoch


def kill() -> None:
    deadline = time.monotonic() + PATIENCE_S
    while KILL_ALL and not list(DURABLE.glob("commit-*.hvd")) and time.monotonic() < deadline:
        time.sleep(0.001)
    report("killed", rank=context.rank(), commits=commits[0])
    os.kill(os.getpid(), signal.SIGKILL)


def disturbed(state: State) -> None:
    epoch = membership.epoch() or 0
    commits[epoch] += 1
    if commits[epoch] == 1:
        report("epoch", epoch=epoch, rank=context.rank(), size=context.size(), lr=rate(state))
    if KILL_AT and epoch and commits[epoch] >= ALONE and context.size() < SIZE:
        wait_for_others(state)
    commit(state)
    if FIRST_LIFE and epoch == 0 and commits[0] == KILL_AT and (KILL_ALL or context.rank() == 0):
        threading.Timer(KILL_AFTER_S, kill).start()


def rate(state: Any) -> float:
    if not hasattr(state, "model"):
        return 1.0  # the script's own affair
    if hasattr(state.model, "jax_state_sync"):
        state.model.jax_state_sync()  # in a step of JAX the variables are elsewhere
    groups = getattr(state.optimizer, "param_groups", None)
    return float(groups[0]["lr"] if groups else state.optimizer.learning_rate)


def taking(state: State) -> None:
    take_durable(state)
    report("taken", rank=context.rank(), done=[state.epoch, state.batch])


def wait_for_others(state: State) -> None:
    """Commits, and looks for news until there are some, on all ranks together."""
    commit(state)
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        time.sleep(0.05)
        state.check_host_updates()


if __name__ == "__main__":
    State.commit, State.take_durable = disturbed, taking
    script = Path(sys.argv[1])
    sys.argv = sys.argv[1:]
    sys.path[0] = str(script.parent)
    runpy.run_path(str(script), run_name="__main__")
