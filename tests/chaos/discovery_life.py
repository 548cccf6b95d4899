"""An elastic job as its state machine sees it, in simulated time, under a discovery script that a seed makes up.

Workers come as far as hvd.init() or die or hang on the way, train, leave at commits, and end; hosts may be out of
reach. What the machine decides is checked, and how the job ends is told. No process, no clock.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import random
from typing import Any, NamedTuple, Optional

from horovod._core.errors import InvalidArgumentError
from horovod.runner.elastic import machine
from horovod.runner.elastic.blacklist import Blacklist
from horovod.runner.elastic.discovery import parse
from horovod.runner.elastic.events import (
    FAULT,
    WELL,
    Announce,
    Asked,
    Dismiss,
    Ended,
    Event,
    Fail,
    Finish,
    Found,
    HostGone,
    Kill,
    Passed,
    Place,
    Start,
)
from horovod.runner.elastic.state import LEAVING, Limits

from .discovery_outputs import RANKS, made_up

_GOOD = ("a:3\n", "a:4\n", "a:2\nb:1\n", "b:3\n", "a:3\nb:1\n", "a:3\nb:0\n")
_OTHERS = ("a:2\n", "a:1\n", "b:2\n", "c:1\n", "a:0\nb:1\n")
_BEYOND = ("a:3\nfar:2\n", "far:3\n", "a:1\nfar2:2\n")
_PATIENCE_S, _ANSWER_S = 90.0, 10.0
_LONGEST_S = 3000.0


class Told(NamedTuple):
    """How a job ended. `well` is what the launcher would make code 0 of; `fair`: nothing but the script was wrong, and
    that not for ever."""

    well: bool
    why: str
    fair: bool
    after_s: float


class Life:
    """See the head of the file.

    Args:
        seed: makes it up.
    """

    def __init__(self, seed: str) -> None:
        self._rng = rng = random.Random(seed)
        self._faults = rng.random() < 0.5
        self._beyond = rng.random() < 0.2
        self._outputs = made_up(rng, _GOOD, _OTHERS + (_BEYOND if self._beyond else ()))
        self._left_s = rng.uniform(2.0, 20.0)  # of training
        self._least = rng.choice((1, 2, RANKS))
        limits = Limits(RANKS, self._least, rng.choice((None, RANKS, 4)), None, _PATIENCE_S, _ANSWER_S)
        cooldown = (2, 10) if rng.random() < 0.5 else None
        self._now_s = 0.0
        self._coming: list[tuple[float, int, str, int]] = []
        self._order = itertools.count()
        self._stage, self._begun_s = "starting", 0.0
        self._ended: set[int] = set()
        self._asked: set[int] = set()
        self._gone: set[int] = set()
        self._hangs = False
        self._end: Optional[Told] = None
        self._at(0.5, "script", 1)
        first = parse(self._outputs.run(0).text or "", "find.sh", None)
        self.state, decided = machine.begin(limits, first, Blacklist(cooldown=cooldown), 0.0)
        self._do(decided)

    def live(self) -> Told:
        """To the end."""
        while self._end is None:
            due_s = machine.next_s(self.state, self._now_s)
            at_s = self._coming[0][0] if self._coming else None
            assert (due_s, at_s) != (None, None), f"a hang: nothing would ever happen: {self.state}"
            if at_s is None or (due_s is not None and due_s < at_s):
                self._now_s = max(self._now_s, due_s or 0.0)
                self._tell(Passed())
            else:
                self._now_s, _, what, number = heapq.heappop(self._coming)
                getattr(self, f"_on_{what}")(number)
            assert self._now_s < _LONGEST_S, f"a hang: {self.state}"
        return self._end

    # ---- what happens

    def _on_script(self, number: int) -> None:
        run = self._outputs.run(number)
        if run.text is not None:
            with contextlib.suppress(InvalidArgumentError):  # the hosts stay as they are
                self._tell(Found(parse(run.text, "find.sh", None)))
        self._at(1.0 + self._outputs.run(number + 1).takes_s, "script", number + 1)

    def _on_init(self, worker: int) -> None:
        if worker not in self._gone:
            self._asked.add(worker)
            leaving = self.state.workers[worker].phase == LEAVING
            self._tell(Asked(worker))
            if leaving:
                self._at(0.1, "well", worker)

    def _on_dead(self, worker: int) -> None:
        if worker in self._gone:
            return
        member = worker in self.state.members and self._stage == "training"
        self._gone.add(worker)
        self._tell(Ended(worker, FAULT, "was killed by signal 9", self._rng.random()))
        if member and self._end is None:
            self._leave(0.3)

    def _on_well(self, worker: int) -> None:
        if worker not in self._gone:
            if self._stage == "done" and worker in self.state.members:
                self._ended.add(worker)
            self._gone.add(worker)
            self._tell(Ended(worker, WELL, "exited with code 0"))

    def _on_leave(self, worker: int) -> None:
        if worker not in self._gone and self._stage == "leaving":
            self._tell(Asked(worker, (self.state.epoch, 1)))

    def _on_trained(self, epoch: int) -> None:
        if self._stage == "training" and epoch == self.state.epoch:
            self._stage = "done"
            for worker in self.state.members:
                dies = self._faults and self._rng.random() < 0.03
                self._at(self._rng.uniform(0.0, 1.0), "dead" if dies else "well", worker)

    def _on_beyond(self, worker: int) -> None:
        """The host of this worker cannot be reached."""
        if worker not in self._gone:
            host = self.state.workers[worker].host
            self._gone |= {number for number, each in self.state.workers.items() if each.host == host}
            self._tell(HostGone(host, f"{host} cannot be used", self._rng.random()))

    # ---- what is decided

    def _tell(self, event: Event) -> None:
        if self._end is None:
            self.state, decided = machine.step(self.state, event, self._now_s)
            self._do(decided)

    def _do(self, decided: tuple[Any, ...]) -> None:
        for decision in decided:
            assert decision.why
            if isinstance(decision, Start):
                self._start(decision)
            elif isinstance(decision, Place):
                assert len(decision.seats) >= (1 if self.state.finishing else self._least)
                self._train(decision.epoch)
            elif isinstance(decision, Dismiss):
                asked = decision.worker in self._asked
                self._at(self._rng.uniform(0.1, 0.5), "well" if asked else "dead", decision.worker)
            elif isinstance(decision, Kill):
                self._at(0.05, "dead", decision.worker)
            elif isinstance(decision, Announce):
                self._leave(0.5)
            elif isinstance(decision, (Fail, Finish)):
                self._over(decision)

    def _start(self, decision: Start) -> None:
        if decision.host.startswith("far"):
            self._at(1.0, "beyond", decision.worker)
            return
        fate = self._rng.random() if self._faults else 1.0
        if fate < 0.08 and not self._hangs:  # one alone: if all do, the program may be one that never calls hvd.init()
            self._hangs = True
        else:
            self._at(self._rng.uniform(0.3, 8.0), "dead" if fate < 0.2 else "init", decision.worker)

    def _train(self, epoch: int) -> None:
        self._stage, self._begun_s = "training", self._now_s
        self._at(self._left_s, "trained", epoch)
        if self._faults and self._rng.random() < 0.3:
            self._at(self._rng.uniform(0.0, 10.0), "dead", self._rng.choice(self.state.members))

    def _leave(self, within_s: float) -> None:
        if self._stage == "training":
            self._stage = "leaving"
            self._left_s = max(0.2, self._left_s - (self._now_s - self._begun_s))
            for worker in self.state.members:
                self._at(self._rng.uniform(0.05, within_s), "leave", worker)

    def _over(self, decision: Any) -> None:
        well = isinstance(decision, Finish)
        if well:
            assert self._stage == "done", "code 0 without training"
            assert set(self.state.members) <= self._ended and len(self._ended) >= self._least, "code 0 for a part"
        fair = not self._faults and not self._beyond and self._outputs.ends_well
        self._end = Told(well, decision.why, fair, self._now_s)

    def _at(self, after_s: float, what: str, number: int) -> None:
        heapq.heappush(self._coming, (self._now_s + after_s, next(self._order), what, number))
