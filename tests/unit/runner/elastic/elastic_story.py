"""An elastic job of the state machine that is told what happens; its tests are made of it."""

from __future__ import annotations

import json
from typing import Any, Optional

from horovod.runner.elastic import machine
from horovod.runner.elastic.assignment import NO_STATE, Version
from horovod.runner.elastic.blacklist import Blacklist
from horovod.runner.elastic.events import FAULT, Asked, Decision, Ended, Event, HostGone, Passed, Place, as_json
from horovod.runner.elastic.state import Limits
from horovod.runner.machines.hosts import Host


class Story:
    """A job that is told what happens; the newest decisions are in `decided`."""

    def __init__(self, hosts: str = "a:4", cooldown: Optional[tuple[int, int]] = None, **limits: Any) -> None:
        self.now_s = 0.0
        self.log: list[Decision] = []
        found = tuple(Host.from_string(each) for each in hosts.split(","))
        chosen = Limits(**{"first": 4, "least": 2, **limits})
        self._take(machine.begin(chosen, found, Blacklist(cooldown=cooldown), 0.0))

    def tell(self, event: Event, after_s: float = 0.0) -> list[Decision]:
        self.now_s += after_s
        return self._take(machine.step(self.state, event, self.now_s))

    def ask(self, *workers: int, version: Optional[Version] = None) -> list[Decision]:
        decided: list[Decision] = []
        for worker in workers:
            known = worker in self.state.members
            decided += self.tell(Asked(worker, version or ((self.state.epoch, 1) if known else NO_STATE)))
        return decided

    def die(self, worker: int, fate: str = FAULT) -> list[Decision]:
        return self.tell(Ended(worker, fate, "was killed by signal 9"))

    def lose(self, host: str, silent: bool = False) -> list[Decision]:
        return self.tell(HostGone(host, f"{host} was lost: silence", silent=silent))

    def wait(self, seconds: float) -> list[Decision]:
        return self.tell(Passed(), seconds)

    @property
    def ranks(self) -> list[int]:
        return list(self.state.members)

    def _take(self, outcome: machine.Outcome) -> list[Decision]:
        self.state, decided = outcome
        self.log += decided
        for each in decided:
            json.dumps(as_json(each))
        return list(decided)


def running(hosts: str = "a:4", **more: Any) -> Story:
    story = Story(hosts, **more)
    story.ask(*story.state.workers)
    assert story.state.epoch == 0
    return story


def kinds(decided: list[Decision]) -> list[type[Any]]:
    return [type(each) for each in decided]


def place_in(decided: list[Decision]) -> Place:
    return next(each for each in decided if isinstance(each, Place))
