"""A training whose result tells whether a step was lost or done twice; it fails where it is told to.

TEST_FAULTS is a list of [step, which rank, what]: the first, the middle or the last rank kills or stops itself, raises,
or asks for what the others do not; at the step "start", before hvd.init(), "any" does. Each happens once per job.
TEST_STEPS are done, TEST_PAUSE_S apart; with TEST_UNTIL_SIZE further ones until so many ranks have taken part.
TEST_START_S pass before hvd.init().
"""

import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
from jobs.report import VARIABLE, report

import horovod.numpy as hvd
from horovod._core.life import membership

FAULTS = json.loads(os.environ.get("TEST_FAULTS", "[]"))
STEPS = int(os.environ.get("TEST_STEPS", "20"))
PAUSE_S = float(os.environ.get("TEST_PAUSE_S", "0.01"))
UNTIL_SIZE = int(os.environ.get("TEST_UNTIL_SIZE", "0"))
HOST = os.environ.get("HOROVOD_HOSTNAME", "")


def which(step: object) -> list[str]:
    """What this rank is called by TEST_FAULTS."""
    if step == "start":
        return ["any"]
    names = {"first": 0, "middle": hvd.size() // 2, "last": hvd.size() - 1}
    return [name for name, rank in names.items() if rank == hvd.rank()]


def fail_if_told(step: object) -> None:
    for number, (at, who, what) in enumerate(FAULTS):
        if at == step and who in which(step) and once(number):
            report("fault", what=what, rank=-1 if step == "start" else hvd.rank(), pid=os.getpid(), step=step)
            if what == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            elif what == "stop":
                os.kill(os.getpid(), signal.SIGSTOP)
            elif what == "raise":
                raise ValueError("a mistake of the program")
            elif what == "mismatch":
                hvd.allreduce(np.ones(7), name="gradient")
            elif what == "exit":
                sys.exit(3)


def once(number: int) -> bool:
    try:
        Path(os.environ[VARIABLE], f"fault-{number}").open("x").close()
    except FileExistsError:
        return False
    return True


def finished(state: hvd.elastic.ObjectState) -> bool:
    return state.step >= STEPS and state.largest >= UNTIL_SIZE


@hvd.elastic.run
def train(state: hvd.elastic.ObjectState) -> None:
    place = {"epoch": membership.epoch(), "rank": hvd.rank(), "size": hvd.size(), "local_rank": hvd.local_rank()}
    report("epoch", **place, step=state.step, pid=os.getpid(), host=HOST)
    while not finished(state):
        fail_if_told(state.step)
        state.weights += hvd.allreduce(np.full(8, state.step + 1.0), name="gradient")
        state.step += 1
        state.largest = max(state.largest, hvd.size())
        report("step", step=state.step, epoch=membership.epoch(), rank=hvd.rank(), size=hvd.size())
        time.sleep(PAUSE_S)
        state.commit()


def main() -> None:
    time.sleep(float(os.environ.get("TEST_START_S", "0")))
    fail_if_told("start")
    hvd.init()
    state = hvd.elastic.ObjectState(weights=np.zeros(8), step=0, largest=0)
    state.register_reset_callbacks([lambda: fail_if_told("reset")])
    train(state)
    total = state.step * (state.step + 1) / 2
    report(
        "end",
        rank=hvd.rank(),
        size=hvd.size(),
        host=HOST,
        step=state.step,
        right=bool((state.weights == total).all()),
        hash=hashlib.sha256(state.weights.tobytes()).hexdigest(),
    )


if __name__ == "__main__":
    main()
