"""Drives an elastic job on this machine: hears of deaths, questions and hosts, has `machine` decide, and does it.

It has the face of a crew (`runner.crew`), so that `supervision` follows an elastic job as any other: the deaths that
the job survives, and the ranks that join, are events of their own. Everything that waits here is one poller.
"""

from __future__ import annotations

import logging
import random
import select
import signal
import time
from collections.abc import Iterable
from typing import Callable, Final, NamedTuple, Optional

from horovod.runner.crew import (
    Crew,
    Event,
    Exited,
    GivenUp,
    Joined,
    Refused,
    Renumbered,
    Said,
    Survived,
)
from horovod.runner.elastic import events as elastic_events
from horovod.runner.elastic import machine, words
from horovod.runner.elastic.events import (
    ERROR,
    FAULT,
    WELL,
    Announce,
    Asked,
    Decision,
    Dismiss,
    Ended,
    Fail,
    Found,
    Kill,
    Passed,
    Place,
    Start,
)
from horovod.runner.elastic.journal import Journal
from horovod.runner.elastic.machine import LEAVING, State
from horovod.runner.elastic.roster_keeper import Lost, RosterKeeper
from horovod.runner.elastic.script import Script
from horovod.runner.hosts import Host
from horovod.runner.limits import reason_of

_SIGNALS: Final = range(128 + 1, 128 + 32)  # exit codes of shells, for programs that a signal has ended

_log: Final = logging.getLogger("horovod.runner")


class Hands(NamedTuple):
    """What the driver acts by.

    Attributes:
        crew: the processes of this machine.
        start: starts a further worker on a host, by its number; what is to be read from it.
        renumber: output of a worker is shown under its rank from here on.
        roster: where workers ask.
        poller: what roster and script wake.
    """

    crew: Crew
    start: Callable[[int, str], Joined]
    renumber: Callable[[int, int], None]
    roster: RosterKeeper
    poller: select.epoll


class Around(NamedTuple):
    """What is around the job.

    Attributes:
        usable: those of the hosts that ranks can be started on.
        script: tells the hosts; None: they stay as they are.
        journal: of the job.
    """

    usable: Callable[[tuple[Host, ...]], tuple[Host, ...]]
    script: Optional[Script]
    journal: Journal


class Driver:
    """See the head of the file.

    Args:
        state: of the job, whose first workers have been started.
        hands: what it acts by; its own from here on.
        around: what is around the job; its own too.

    Attributes:
        state: the present one.
    """

    def __init__(self, state: State, hands: Hands, around: Around) -> None:
        self.state = state
        self._hands = hands
        self._around = around
        self._first = state.next_number
        self._asked: set[int] = set()
        self._lost: set[int] = set()
        self._killed: dict[int, str] = {}
        self._problem = ""  # of the script, as it was told
        self._found: tuple[Host, ...] = ()  # as the script has printed them last
        self._due_s = machine.next_s(state, time.monotonic())
        self._told: list[Event] = []
        hands.poller.register(hands.crew.fileno(), select.EPOLLIN)
        if around.script is not None:
            around.script.wake(hands.poller)

    # ---- a crew

    def fileno(self) -> int:
        return self._hands.poller.fileno()

    def next_s(self) -> Optional[float]:
        script = self._around.script
        times = [self._due_s]
        times += [script.next_s()] if script is not None and not self.state.over else []
        return min((each for each in times if each is not None), default=None)

    def events(self) -> list[Event]:
        hands = self._hands
        ready = [fd for fd, _ in hands.poller.poll(0)]
        # What a worker has said before it ended comes before its end.
        for fd in ready:
            if hands.roster.owns(fd):
                for heard in hands.roster.serve(fd):
                    self._hear(heard)
        if hands.crew.fileno() in ready:
            for event in hands.crew.events():
                self._on_crew(event)
        if self._around.script is not None and not self.state.over:
            self._look(self._around.script)
        self._step(Passed())
        told, self._told = self._told, []
        return told

    def taken(self) -> None:
        self._hands.crew.taken()

    def signal(self, ranks: Iterable[int], number: int) -> None:
        """The job is being ended: nobody is started any more."""
        if not self.state.over:
            self._around.journal.note({"event": "stopped", "signal": number})
            self.state = self.state._replace(over=True)
        self._hands.crew.signal(ranks, number)

    def pause(self) -> None:
        self._hands.crew.pause()

    def resume(self) -> None:
        self._hands.crew.resume()

    def finish(self) -> None:
        self.state = self.state._replace(over=True)
        self._hands.crew.finish()

    def close(self) -> None:
        self._hands.crew.close()
        self._hands.roster.close()
        if self._around.script is not None:
            self._around.script.close()  # which the poller watches
        self._hands.poller.close()
        self._around.journal.close()

    def asked(self) -> set[int]:
        """Those of the first workers that have asked for a place."""
        return self._asked & set(range(self._first))

    # ---- what happens

    def _hear(self, heard: Asked | Lost) -> None:
        if isinstance(heard, Lost):
            self._lost.add(heard.worker)
        else:
            self._asked.add(heard.worker)
            worker = self.state.workers.get(heard.worker)
            if worker is not None and worker.phase == LEAVING:  # it has made light of the signal
                self._hands.roster.dismiss(heard.worker, "there is no place for it any more")
            self._step(heard)

    def _on_crew(self, event: Event) -> None:
        if isinstance(event, Exited):
            self._on_exit(event)
        elif isinstance(event, Refused) and event.rank >= self._first:
            self._told.append(Survived(event.rank))
            self._step(Ended(event.rank, FAULT, f"could not be started: {reason_of(event.error)}", random.random()))
        else:
            self._told.append(event)

    def _on_exit(self, event: Exited) -> None:
        worker = self.state.workers.get(event.rank)
        fate, over = self._fate(event), self.state.over
        how = self._killed.pop(event.rank, event.how)
        self._step(Ended(event.rank, fate, how, random.random()))
        dismissed = worker is not None and worker.phase == LEAVING
        ends_the_job = fate == WELL or (fate == ERROR and self.state.over)
        self._told.append(Survived(event.rank) if dismissed or not (over or ends_the_job) else event)

    def _fate(self, event: Exited) -> str:
        if event.status == 0:
            return WELL
        by_signal = event.status & 0x7F or event.status >> 8 in _SIGNALS
        return FAULT if by_signal or event.rank in self._lost else ERROR

    def _look(self, script: Script) -> None:
        hosts = script.serve()
        if script.problem and script.problem != self._problem:
            self._say(f"{script.problem}; the hosts stay as they are until it succeeds.")
            self._around.journal.note({"event": "problem", "why": script.problem})
        self._problem = script.problem
        if hosts is not None and hosts != self._found:
            self._found = hosts
            self._step(Found(self._around.usable(hosts)))

    def _step(self, event: elastic_events.Event) -> None:
        before, now_s = self.state, time.monotonic()
        self.state, decided = machine.step(before, event, now_s)
        self._due_s = machine.next_s(self.state, now_s)  # asked later, it would leave out what is due by then
        if self.state is not before and not isinstance(event, Passed):
            self._around.journal.write(event)
        if before.short_s is None and self.state.short_s is not None and not self.state.over:
            self._say(words.waiting(self.state))
        for decision in decided:
            self._around.journal.write(decision)
            self._do(decision)

    # ---- what is done

    def _do(self, decision: Decision) -> None:
        hands = self._hands
        if isinstance(decision, Start):
            self._told.append(hands.start(decision.worker, decision.host))
        elif isinstance(decision, Place):
            workers = tuple(seat.worker for seat in decision.seats)
            for seat in decision.seats:
                hands.roster.place(seat, workers, decision.epoch, decision.sync)
                hands.renumber(seat.worker, seat.slot.rank)
            self._told.append(Renumbered({worker: rank for rank, worker in enumerate(workers)}))
            if decision.epoch:
                self._say(words.status(decision, self.state, time.monotonic()))
        elif isinstance(decision, Dismiss):
            hands.roster.dismiss(decision.worker, decision.why)
            if decision.worker not in self._asked:
                hands.crew.signal([decision.worker], signal.SIGTERM)
        elif isinstance(decision, Announce):
            at_s = time.time()
            for worker in self.state.members:
                hands.roster.announce(worker, decision.kind, at_s)
        elif isinstance(decision, Kill):
            self._killed[decision.worker] = decision.why
            hands.crew.signal([decision.worker], signal.SIGKILL)
        elif isinstance(decision, Fail):
            self._told.append(GivenUp(decision.why))

    def _say(self, text: str) -> None:
        self._told.append(Said(text))


class FirstAsked:
    """The workers that have asked for a place at the start of the job: `crew.Arrivals`.

    Args:
        driver: of the job.

    Attributes:
        over: the first epoch has begun, or will begin with others.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    @property
    def fd(self) -> int:
        return self._driver.fileno()

    @property
    def over(self) -> bool:
        return self._driver.state.epoch >= 0 or bool(self._driver.state.news)

    def ranks(self) -> set[int]:
        return self._driver.asked()

    def nobody(self) -> bool:
        return not self._driver.asked()

    def close(self) -> None:
        """Nothing was opened for it."""
