"""Drives an elastic job: hears of deaths, questions and hosts, has `machine` decide, and does it.

It has the face of a crew (`runner.processes.crew`), so that `supervision` follows an elastic job as any other: the
deaths that the job survives, and the ranks that join, are events of their own. Where the workers are, its own crew
knows. Everything that waits here is one poller.
"""

from __future__ import annotations

import logging
import random
import select
import signal
import time
from collections.abc import Iterable, Mapping
from typing import Callable, Final, NamedTuple, Optional

from horovod._core.absent import absent_names
from horovod._net.roster import Dismissal, News, Seat, words
from horovod.runner.elastic import events as elastic_events
from horovod.runner.elastic import machine, stories
from horovod.runner.elastic.crew import ElasticCrew
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
    Finish,
    Found,
    HostGone,
    Kill,
    Passed,
    Place,
    Release,
    Start,
)
from horovod.runner.elastic.host_source import HostSource
from horovod.runner.elastic.journal import Journal
from horovod.runner.elastic.state import LEAVING, State, is_newcomer
from horovod.runner.live.figures import Reading
from horovod.runner.machines.hosts import Host
from horovod.runner.machines.limits import reason_of
from horovod.runner.processes.crew import (
    Asks,
    Bereft,
    Event,
    Exited,
    Finished,
    GivenUp,
    HostLost,
    Refused,
    Renumbered,
    Said,
    Survived,
)
from horovod.runner.processes.strays import sentence_on_strays
from horovod.runner.processes.vitals import Vitals

_AGAIN_S: Final = 600.0  # after that the same is worth saying again
_SIGNALS: Final = range(128 + 1, 128 + 32)  # exit codes of shells, for programs that a signal has ended

_log: Final = logging.getLogger("horovod.runner")


class Around(NamedTuple):
    """What is around the job.

    Attributes:
        usable: those of the hosts that ranks can be started on.
        source: names the hosts.
        journal: of the job.
    """

    usable: Callable[[tuple[Host, ...]], tuple[Host, ...]]
    source: HostSource
    journal: Journal


class _PassedOn:
    """What the crew does for the driver."""

    _crew: ElasticCrew

    def taken(self) -> None:
        self._crew.taken()

    def vitals(self) -> Mapping[int, Optional[Vitals]]:
        return self._crew.vitals()

    def figures(self) -> Mapping[int, Reading]:
        return self._crew.figures()

    def pause(self) -> None:
        self._crew.pause()

    def resume(self) -> None:
        self._crew.resume()


class Driver(_PassedOn):
    """See the head of the file.

    Args:
        state: of the job, whose first workers have been started.
        crew: of the job; its own from here on.
        around: what is around the job; its own too.

    Attributes:
        state: the present one.
    """

    def __init__(self, state: State, crew: ElasticCrew, around: Around) -> None:
        self.state = state
        self._crew = crew
        self._poller = select.epoll()
        self._around = around
        self._first = state.next_number
        self._asked: set[int] = set()
        self._lost: set[int] = set()
        self._killed: dict[int, str] = {}
        self._problem = ""  # of the source, as it was noted
        self._said_s: dict[str, float] = {}  # when what kind of thing was said that may happen every second
        self._unusable: dict[str, str] = {}  # hosts, with what was said of them
        self._found: Optional[tuple[Host, ...]] = None  # as the source has named them last
        self._due_s = machine.next_s(state, time.monotonic())
        self._unseen: list[Event] = []
        self._poller.register(crew.fileno(), select.EPOLLIN)
        around.source.wake(self._poller)

    # ---- a crew

    def fileno(self) -> int:
        return self._poller.fileno()

    def next_s(self) -> Optional[float]:
        times = [self._due_s, self._crew.next_s()]
        times += [] if self.state.over else [self._around.source.next_s()]
        return min((each for each in times if each is not None), default=None)

    def events(self) -> list[Event]:
        ready, due_s = [fd for fd, _ in self._poller.poll(0)], self._crew.next_s()
        if self._crew.fileno() in ready or (due_s is not None and due_s <= time.monotonic()):
            for event in self._crew.events():
                self._on_crew(event)
        if not self.state.over:
            self._look(self._around.source)
        self._step(Passed())
        unseen, self._unseen = self._unseen, []
        return unseen

    def signal(self, ranks: Iterable[int], number: int) -> None:
        """The job is being ended: nobody is started any more."""
        if not self.state.over:
            self._around.journal.note({"event": "stopped", "signal": number})
            self.state = self.state._replace(over=True)
        self._crew.signal(ranks, number)

    def finish(self) -> None:
        self.state = self.state._replace(over=True)
        self._crew.finish()

    def close(self) -> None:
        self._crew.close()
        self._around.source.close()  # which the poller watches
        self._poller.close()
        self._around.journal.close()

    @property
    def changed(self) -> bool:
        """It has begun, or will begin with others than the first workers."""
        return self.state.epoch >= 0 or bool(self.state.news) or self.state.next_number > self._first

    def asked(self) -> set[int]:
        """The workers that have asked for a place."""
        return set(self._asked)

    def results(self) -> tuple[int, ...]:
        """The workers whose results count: the ranks of the last epoch, then those that were done before it, of which
        the first workers' numbers are their ranks."""
        return (*self.state.members, *sorted(set(self.state.done) - set(self.state.members)))

    # ---- what happens

    def _on_crew(self, event: Event) -> None:
        if isinstance(event, Asks):
            self._on_question(event)
        elif isinstance(event, Bereft):
            self._lost.add(event.rank)
        elif isinstance(event, Exited):
            self._on_exit(event)
        elif isinstance(event, HostLost):
            self._unseen += [Survived(rank) for rank in event.ranks]
            news = not set(event.ranks) & set(self.state.members) and self._unusable.get(event.host) != event.why
            self._step(HostGone(event.host, event.why.rstrip("."), random.random(), event.silent))
            if news:  # no epoch ends by it, whose line would tell
                self._unusable[event.host] = event.why
                held = self.state.blacklist.of(event.host)
                self._say(stories.unusable(event.why, held, time.monotonic()))
        elif isinstance(event, Refused) and event.rank >= self._first:
            self._unseen.append(Survived(event.rank))
            self._step(Ended(event.rank, FAULT, f"could not be started: {reason_of(event.error)}", random.random()))
        else:
            self._unseen.append(event)

    def _on_question(self, event: Asks) -> None:
        self._asked.add(event.rank)
        worker = self.state.workers.get(event.rank)
        if worker is not None and worker.phase == LEAVING:  # it has made light of the signal
            self._crew.tell(event.rank, words(Dismissal("it has no slot any more")))
        self._step(Asked(event.rank, event.version, event.why))

    def _on_exit(self, event: Exited) -> None:
        worker = self.state.workers.get(event.rank)
        fate, over = self._fate(event), self.state.over
        early = fate == WELL and is_newcomer(self.state, event.rank)
        how = self._killed.pop(event.rank, event.how)
        self._step(Ended(event.rank, fate, how, random.random()))
        dismissed = worker is not None and worker.phase == LEAVING
        ends_the_job = (fate == WELL and not early) or (fate == ERROR and self.state.over)
        self._unseen.append(Survived(event.rank) if dismissed or not (over or ends_the_job) else event)

    def _fate(self, event: Exited) -> str:
        if event.status == 0:
            return WELL
        by_signal = event.status & 0x7F or event.status >> 8 in _SIGNALS
        return FAULT if by_signal or event.rank in self._lost else ERROR

    def _look(self, source: HostSource) -> None:
        hosts = source.serve()
        for line in source.written():
            self._say(line)
        if source.problem and source.problem != self._problem:
            self._say_once(source.kind, f"{source.problem}; the hosts stay as they are until it succeeds.")
            self._around.journal.note({"event": "problem", "why": source.problem})
        self._problem = source.problem
        if hosts is not None and hosts != self._found:
            self._found = hosts
            self._step(Found(self._around.usable(hosts)))

    def _step(self, event: elastic_events.Event) -> None:
        before, now_s = self.state, time.monotonic()
        self.state, decided = machine.step(before, event, now_s)
        self._due_s = machine.next_s(self.state, now_s)  # asked later, it would leave out what is due by then
        if self.state is not before and not isinstance(event, Passed):
            self._around.journal.write(event)
        self._tell_held(before, now_s)
        if before.short_s is None and self.state.short_s is not None and not self.state.over:
            text = stories.waiting(self.state, now_s)
            self._say_once(text, text)
        for decision in decided:
            self._around.journal.write(decision)
            self._do(decision)

    def _tell_held(self, before: State, now_s: float) -> None:
        known = {entry.host: entry.since_s for entry in before.blacklist.entries}
        for entry in self.state.blacklist.entries:
            if known.get(entry.host) != entry.since_s:
                self._around.journal.held(entry, now_s)
                if entry.early:
                    self._say(stories.ended_early(entry, now_s))
                    self._say_once("strays", sentence_on_strays(self._crew.strays()).strip())

    # ---- what is done

    def _do(self, decision: Decision) -> None:
        crew = self._crew
        if isinstance(decision, Start):
            self._unseen.append(crew.begin(decision.worker, decision.host))
        elif isinstance(decision, Place):
            self._place(decision)
        elif isinstance(decision, Dismiss):
            crew.tell(decision.worker, words(Dismissal(decision.why)))
            if decision.worker not in self._asked:
                crew.signal([decision.worker], signal.SIGTERM)
        elif isinstance(decision, Announce):
            at_s = time.time()
            for worker in self.state.members:
                crew.tell(worker, words(News(decision.kind, at_s)))
        elif isinstance(decision, Kill):
            self._killed[decision.worker] = decision.why
            if decision.worker not in self._asked:
                self._say_once("strays", sentence_on_strays(crew.strays()).strip())
            crew.signal([decision.worker], signal.SIGKILL)
        elif isinstance(decision, Release):
            crew.release(decision.host)
        elif isinstance(decision, Fail):
            begun = self.state.epoch >= 0
            self._unseen.append(GivenUp(decision.why if begun else decision.why + sentence_on_strays(crew.strays())))
        elif isinstance(decision, Finish):
            self._unseen.append(Finished())

    def _place(self, decision: Place) -> None:
        workers = tuple(seat.worker for seat in decision.seats)
        addresses = {host: self._crew.address(host) for host in {seat.slot.hostname for seat in decision.seats}}
        for seat in decision.seats:
            numbers = seat.slot._asdict()
            address = addresses[numbers.pop("hostname")]
            place = Seat(**numbers, epoch=decision.epoch, workers=workers, sync=decision.sync, address=address)
            self._crew.tell(seat.worker, words(place))
            self._crew.renumber(seat.worker, seat.slot.rank)
        self._unseen.append(Renumbered({worker: rank for rank, worker in enumerate(workers)}))
        if decision.epoch:
            self._say(stories.status(decision, self.state, time.monotonic()))

    def _say_once(self, kind: str, text: str) -> None:
        """Says it, if there is something to say, unless something of this kind was said a short time ago."""
        now_s = time.monotonic()
        self._said_s = {known: at_s for known, at_s in self._said_s.items() if now_s - at_s < _AGAIN_S}
        if text and kind not in self._said_s:
            self._said_s[kind] = now_s
            self._say(text)

    def _say(self, text: str) -> None:
        self._unseen.append(Said(text))


class FirstAsked:
    """The workers that have asked for a place at the start of the job: `crew.Arrivals`.

    Args:
        driver, crew: of the job.

    Attributes:
        over: the first epoch has begun, or will begin with others.
    """

    def __init__(self, driver: Driver, crew: ElasticCrew) -> None:
        self._driver = driver
        self._crew = crew

    @property
    def fd(self) -> int:
        return self._driver.fileno()

    @property
    def over(self) -> bool:
        return self._driver.changed

    def ranks(self) -> set[int]:
        return self._driver.asked()

    def nobody(self) -> bool:
        return not self._driver.asked()

    def strays(self) -> int:
        return self._crew.strays()

    def close(self) -> None:
        """Nothing was opened for it."""


__getattr__ = absent_names(__name__, {"ElasticDriver": "horovodrun --min-np, or horovod.run(min_num_proc=...)"})
