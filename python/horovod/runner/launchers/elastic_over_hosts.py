"""The crew of an elastic job on several hosts: agents, of which some come and others go. Used by `elastic`.

The first hosts are called together, as for a job whose ranks stay. A host that comes later is called when a worker is
to start there, and its agent ends when it has no workers any more and gets none. A host that is lost, or that cannot
be used, is one event; nobody waits for it. One that has not answered, or not in time, counts as silent: it may only be
starting.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any, Final, Optional

from horovod.runner.job import Job
from horovod.runner.launchers.agents import Agents, Variables, addresses_of, tell_of_host
from horovod.runner.launchers.base import Outcome, Surroundings
from horovod.runner.launchers.elastic_streams import WorkerStreams, preliminary, worker_environ
from horovod.runner.machines.hosts import Slot
from horovod.runner.machines.limits import reason_of
from horovod.runner.processes.crew import Event, Exited, HostLost, Joined, Output
from horovod.runner.processes.streams import Source, Stream
from horovod.runner.remote.host_side.workplace import STREAMS
from horovod.runner.remote.launcher_side.fleet import Fleet, lost_words
from horovod.runner.remote.launcher_side.link import Link, State
from horovod.runner.remote.ways.diagnosis import cannot_be_used
from horovod.runner.remote.ways.transport import Transport

_ENDING_S: Final = 5.0  # for an agent that has nothing left to do


class _Arrival:
    """An agent that was called and does not run yet.

    Attributes:
        slots: workers that have not been sent to it.
        has_job: the job has been sent to it.
        unwanted: workers that have got a signal, which reaches nobody there yet.
        until_s: it may take so long for its next step.
    """

    def __init__(self, slot: Slot, until_s: float) -> None:
        self.slots = [slot]
        self.has_job = False
        self.unwanted: set[int] = set()
        self.until_s = until_s


class CrewOverHosts(Fleet):
    """See the head of the file; an `elastic.crew.ElasticCrew`.

    Args:
        job: with the first workers as its ranks.
        surroundings: where output goes.
        transport: reaches the hosts.
        variables: that tell a worker its number.

    Attributes:
        agents: of the job.
        streams: of the first workers.

    Raises:
        OSError: a process cannot be started.
    """

    def __init__(
        self, job: Job, surroundings: Surroundings, transport: Transport, variables: Variables = worker_environ
    ) -> None:
        self.agents = Agents(job, surroundings.shipment, transport, variables, elastic=True)
        self._shipment = surroundings.shipment
        self._worker_streams = WorkerStreams(job, surroundings)
        self._coming: dict[Link, _Arrival] = {}
        self._going: dict[Link, float] = {}  # lost, or without workers: until when their processes may take
        self._pending: list[Event] = []
        self.streams: Mapping[Source, Stream] = {
            source: stream for slot in job.slots for source, stream in self._streams_of(slot).items()
        }
        super().__init__(self.agents.ways())

    # ---- of any crew

    def next_s(self) -> Optional[float]:
        return time.monotonic() if self._pending else None

    def events(self) -> list[Event]:
        found = super().events()
        for link, arrival in list(self._coming.items()):
            self._lead(link, arrival)
        pending, self._pending = self._pending, []
        return found + pending

    def signal(self, ranks: Iterable[int], number: int) -> None:
        wanted = set(ranks)
        for link, arrival in list(self._coming.items()):
            arrival.unwanted |= wanted & link.living
            if arrival.unwanted >= link.living:  # nobody is to be started there any more
                now_s = time.monotonic()
                self._pending += self._ends(link.living)
                self._pending += [Exited(rank, int(number), now_s, "was not started") for rank in sorted(link.living)]
                self._part_with(link)
        super().signal(wanted, number)

    def finish(self) -> None:
        for link in list(self._coming):
            self._part_with(link)
        super().finish()

    # ---- of a crew that changes

    def assemble(self, surroundings: Surroundings) -> Optional[Outcome]:
        """See `ElasticCrew`."""
        trouble = self.agents.assemble(self, surroundings)
        if trouble is None:
            self.go()
        return trouble

    def unusable(self) -> Mapping[str, str]:
        """See `ElasticCrew`."""
        return {link.way.host: link.why for link in self.links if link.failed}

    def begin(self, worker: int, host: str) -> Joined:
        """See `ElasticCrew`."""
        slot, link = preliminary(host, worker), self._link(host)
        self._arbiter.expect(1)
        if link is None:
            self._call(host, slot)
        elif link.state is State.RUNNING:
            link.expect(worker)
            self.agents.tell_further(link, slot)
        else:
            link.expect(worker)
            self._coming[link].slots.append(slot)
        return Joined(worker, self._streams_of(slot))

    def tell(self, worker: int, message: Mapping[str, Any]) -> None:
        """See `ElasticCrew`."""
        for link in self.links:
            if worker in link.living:
                link.tell("roster", rank=worker, words=dict(message))

    def renumber(self, worker: int, rank: int) -> None:
        """See `ElasticCrew`."""
        self._worker_streams.renumber(worker, rank)

    def address(self, host: str) -> str:
        """See `ElasticCrew`: that of this machine depends on where the others are."""
        running = [link for link in self.links if link.state is State.RUNNING]
        return {link.way.host: address for link, address in addresses_of(running).items()}.get(host, "")

    def release(self, host: str) -> None:
        """See `ElasticCrew`."""
        link = self._link(host)
        if link is not None and link.state is State.RUNNING:
            link.tell("finish")
            self._going[link] = time.monotonic() + _ENDING_S
        elif link is not None:
            self._part_with(link)

    # ---- one host

    def _link(self, host: str) -> Optional[Link]:
        """The agent of a host that runs, or is going to."""
        links = (link for link in self.links if link.way.host == host and link not in self._going)
        return next((link for link in links if link.state not in (State.DONE, State.LOST)), None)

    def _call(self, host: str, slot: Slot) -> None:
        try:
            why, link = self.agents.transport.why_not((host,)), None
            if not why:
                link = self.call(self.agents.way(host, (slot,)))
        except OSError as error:
            why = f"the launcher cannot start a process: {reason_of(error.errno or 0)}."
        if link is None:
            why = cannot_be_used(host, why)
            self._pending += [*self._ends((slot.rank,)), HostLost((slot.rank,), why, host)]
        else:
            self._coming[link] = _Arrival(slot, time.monotonic() + self.agents.patience_s)

    def _lead(self, link: Link, arrival: _Arrival) -> None:
        """Does the next step of an agent's start, when it is ready for it."""
        if link.state is State.GREETED and not arrival.has_job:
            others = [other for other in self.links if other.state is State.RUNNING and other not in self._going]
            if twin := self.agents.twin(link, others):
                link.give_up(f"it is the same machine as {twin}; give it one name, with all slots")
                return
            self.agents.tell(link, arrival.slots, addresses_of([*others, link])[link])
            arrival.has_job, arrival.slots = True, []
            arrival.until_s = time.monotonic() + self.agents.patience_s
        elif link.state is State.READY:
            del self._coming[link]
            tell_of_host(link)
            self.go_on(link)
            for slot in arrival.slots:
                self.agents.tell_further(link, slot)

    def _lost(self, link: Link) -> list[Event]:
        if link in self._going:
            return []  # it had nobody any more
        host, workers = link.way.host, tuple(sorted(link.living))
        never_ran = self._coming.pop(link, None) is not None
        ranks = sorted(map(self._worker_streams.rank_of, workers))
        why = cannot_be_used(host, link.why) if never_ran else f"{lost_words(host, ranks)}: {link.why}."
        silent = link.channel.silent or link.absent
        self._post_ends(link)
        self._part_with(link)
        return [*self._ends(workers), HostLost(workers, why, host, silent)]

    def _part_with(self, link: Link) -> None:
        """Nothing more is heard of it."""
        self._coming.pop(link, None)
        self._reported_lost.add(link)
        self._going[link] = 0.0
        link.give_up("it is no longer needed")
        link.hang_up()
        link.living.clear()

    def _tick(self) -> None:
        now_s = time.monotonic()
        for link, arrival in self._coming.items():
            if now_s > arrival.until_s and not link.waiting:
                link.give_up()
        super()._tick()  # not before: the beat that it sends is waiting, too
        for link, until_s in list(self._going.items()):
            if link.state in (State.DONE, State.LOST) or now_s > until_s:
                link.hang_up()
                if link.is_cleared(until_s):
                    del self._going[link]
                    self._reported_lost.discard(link)
                    self.links.remove(link)

    def _streams_of(self, slot: Slot) -> dict[Source, Stream]:
        found: dict[Source, Stream] = {(slot.rank, each.name): each for each in self._worker_streams.of(slot)}
        if self._shipment is not None:
            found[slot.rank, "result"] = self._shipment.expect(slot.rank)
        return found

    def _ends(self, workers: Iterable[int]) -> list[Event]:
        """Nothing more comes of what they write."""
        return [Output(worker, stream, b"") for worker in sorted(workers) for stream in STREAMS]
