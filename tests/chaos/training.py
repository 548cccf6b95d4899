"""A rank under chaos: trains whole numbers (`bindings`), suffers its faults (`striking`), and tells what it holds.

Told are: every begin of the training in an epoch, with what is held then; every commit; every fault before it happens;
the end. Not a test itself.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from jobs.report import VARIABLE, report

import horovod.numpy as numpy_hvd
from horovod._core.life import membership

from .bindings import binding, digest, expected, follow, share
from .draw import COMMIT_EVERY
from .faults import orders, struck
from .striking import Striking

STEP_S = 0.002

told = orders()
striking = Striking(told)
bound = binding(told.binding)
hvd = bound.hvd


class Watched(bound.state_class()):  # type: ignore[misc]
    """The framework's state, with the phases of a commit, a restore and a sync."""

    within = ""

    def commit(self) -> None:
        self.__dict__["within"] = "commit"
        try:
            super().commit()
        finally:
            self.__dict__["within"] = ""

    def save(self) -> None:
        if self.within == "commit":
            striking.at("save", self.step)
        super().save()
        if self.within == "commit":
            report("committed", epoch=membership.epoch(), step=self.step)

    def check_host_updates(self) -> None:
        striking.at("compare", self.step)
        super().check_host_updates()

    def restore(self) -> None:
        if self.within != "sync":
            striking.at("restore", membership.epoch())
        super().restore()

    def sync(self) -> None:
        striking.at("sync", membership.epoch())
        self.__dict__["within"] = "sync"
        try:
            super().sync()
        finally:
            self.__dict__["within"] = ""


def train(state: Any) -> None:
    """One call of the function that `hvd.elastic.run` calls again and again."""
    step = state.step
    held = digest(bound.get(state), step)
    report("begin", epoch=membership.epoch(), rank=hvd.rank(), size=hvd.size(), step=step, hash=held)
    striking.begin(step)
    enough = False
    while not enough:
        striking.step(state.step)
        striking.reduce(state.step, numpy_hvd)
        total = bound.reduce(share(state.step, hvd.rank(), hvd.size()))
        bound.put(state, follow(bound.get(state), total))
        state.step += 1
        if (bound.get(state) != expected(state.step)).any():
            report("wrong", step=state.step, epoch=membership.epoch(), rank=hvd.rank())
        time.sleep(STEP_S)
        if state.step % COMMIT_EVERY == 0:
            state.commit()
            enough = bool(numpy_hvd.broadcast_object(is_enough(state.step), name="enough"))


def is_enough(step: int) -> bool:
    """All that is to happen has happened, as rank 0 sees it; from then on it stays so."""
    folder = Path(os.environ[VARIABLE])
    ended = folder / "enough"
    if hvd.rank() or ended.exists():
        return ended.exists()
    if step < told.steps or hvd.size() < told.size or struck(folder) < told.number:
        return False
    ended.touch()
    return True


def main() -> None:
    striking.mistakes(lambda: numpy_hvd.allreduce(bound.get(state)[:3].copy(), name="numbers"))
    striking.come()
    hvd.init()
    state = Watched(**bound.values(), step=0)
    state.register_reset_callbacks([lambda: striking.at("reset", membership.epoch())])
    hvd.elastic.run(train)(state)
    held = digest(bound.get(state), state.step)
    right = held == digest(expected(state.step), state.step)
    report("end", rank=hvd.rank(), size=hvd.size(), step=state.step, hash=held, right=right)
    striking.end()
    hvd.shutdown()
    report("over")


if __name__ == "__main__":
    main()
