"""The crew of a job on several hosts: one link for each, one loop for all, and the arbiter of the board.

Used by `launchers.over_hosts`, `launchers.elastic_over_hosts` and `gathering`, which waits until all agents have
answered, then they get the job and check it, then all go: so nothing runs anywhere before every host can take part.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Optional

from horovod._net.meeting.entries import Arbiter
from horovod.runner.live.figures import Reading
from horovod.runner.loop import Loop
from horovod.runner.processes.crew import Done, Event, Exited, HostLost
from horovod.runner.processes.vitals import Vitals
from horovod.runner.remote.launcher_side.beats import Beats
from horovod.runner.remote.launcher_side.link import Link, State, Way
from horovod.runner.remote.wire.vigil import LOOK_S

_log: Final = logging.getLogger("horovod.runner")
_DONE_S: Final = 10.0  # for all agents to clear up after the last rank; killing takes its time
_PAUSING_S: Final = 1.0  # for the agents to hear of it
_WATCH_S: Final = 4.0  # agents go on for so long after somebody has asked
_ENDING_S: Final = 5.0  # for the processes of all links to end, which includes what agents kill when they are alone


class Fleet:
    """See the head of the file.

    Args:
        ways: to the hosts, each with its ranks.

    Attributes:
        links: one for each way.

    Raises:
        OSError: a process cannot be started.
    """

    def __init__(self, ways: Sequence[Way]) -> None:
        self._loop = Loop()
        self._arbiter = Arbiter(sum(len(way.slots) for way in ways))
        self._reported_lost: set[Link] = set()
        self._reported_full = False
        self._finishing = False
        self._finished_s: Optional[float] = None
        self._done = False
        self._readings: dict[int, Reading] = {}
        self._watched_s = 0.0  # until when agents say what their ranks count
        self.links: list[Link] = []
        self._beats = Beats(self.links)
        try:
            self._loop.tick(self._tick)
            self._loop.tick(self._look, LOOK_S)
            for way in ways:
                self.call(way)
        except BaseException:
            self.close()
            raise

    def call(self, way: Way) -> Link:
        """Calls a host. Raises OSError as above."""
        link = Link(self._loop, way, self._post)
        self.links.append(link)
        return link

    def turn(self) -> None:
        """Does what is to be done now; what has happened shows in the links."""
        self._loop.turn(0)

    def go(self) -> None:
        """The ranks start, on all hosts."""
        for link in self.links:
            self.go_on(link)

    def go_on(self, link: Link) -> None:
        """The ranks start on this host, whose board has what stands on those of the others, in the same order."""
        for text in self._arbiter.standing():
            link.stand(text)
        link.go()

    def fileno(self) -> int:
        return self._loop.fileno()

    def next_s(self) -> Optional[float]:
        return None

    def events(self) -> list[Event]:
        self.turn()
        found: list[Event] = []
        self._take_figures()  # before a link goes with its host
        for link in self.links:
            for event in link.events():
                if isinstance(event, Exited):
                    self._post(f"ended.{event.rank}={event.how}")
                found.append(event)
            if link.state is State.LOST and link not in self._reported_lost:
                self._reported_lost.add(link)
                found += self._lost(link)
        if self._finishing and not self._done and all(link.state in (State.DONE, State.LOST) for link in self.links):
            self._done = True
            found.append(Done())
        return found

    def taken(self) -> None:
        for link in self.links:
            link.taken()

    def signal(self, ranks: Iterable[int], number: int) -> None:
        wanted = set(ranks)
        for link in self.links:
            theirs = sorted(wanted.intersection(link.ranks))
            if theirs:
                link.tell("signal", number=int(number), ranks=theirs)

    def vitals(self) -> Mapping[int, Optional[Vitals]]:
        return {rank: each for link in self.links for rank, each in link.vitals().items()}

    def figures(self) -> Mapping[int, Reading]:
        now_s = time.monotonic()
        if now_s > self._watched_s - _WATCH_S / 2 and not self._finishing:
            self._watched_s = now_s + _WATCH_S
            for link in self.links:
                if link.state is State.RUNNING:
                    link.tell("watch", seconds=_WATCH_S)
        self._take_figures()
        return dict(self._readings)

    def _take_figures(self) -> None:
        for link in self.links:
            self._readings.update(link.figures())

    def strays(self) -> int:
        """See `crew.Arrivals`."""
        return sum(link.strays for link in self.links)

    def finish(self) -> None:
        self._finishing = True
        self._finished_s = time.monotonic()
        for link in self.links:
            link.tell("finish")

    def pause(self) -> None:
        for link in self.links:
            link.tell("silence", expected=True)
        self._loop.until(lambda: not any(link.waiting for link in self.links), time.monotonic() + _PAUSING_S)

    def resume(self) -> None:
        for link in self.links:
            link.tell("silence", expected=False)

    def close(self) -> None:
        self._beats.close()
        for link in self.links:
            link.hang_up()
        deadline_s = time.monotonic() + _ENDING_S
        for link in self.links:
            link.close(deadline_s)
        self._loop.close()

    def _lost(self, link: Link) -> list[Event]:
        self._post_ends(link)
        return [
            HostLost(
                link.ranks, f"{lost_words(link.way.host, link.ranks)}: {link.why}.", link.way.host, link.channel.silent
            )
        ]

    def _post_ends(self, link: Link) -> None:
        """Tells all ranks that these have ended."""
        for rank in sorted(link.living):
            self._post(f"ended.{rank}=was lost with its host: {link.why}")

    def _post(self, text: str) -> None:
        if self._arbiter.post(text):
            for link in self.links:
                if link.state is State.RUNNING:  # others get all of it, in order, when they are
                    link.stand(text)
        elif self._arbiter.full and not self._reported_full:
            self._reported_full = True
            _log.warning("The board of the job is full; ranks that post more get no answer.")

    def _look(self) -> None:
        for link in self.links:
            link.channel.look()

    def _tick(self) -> None:
        for link in self.links:
            link.channel.tick()
            if self._finished_s is not None and time.monotonic() - self._finished_s > _DONE_S + link.way.link_timeout_s:
                link.give_up("it did not finish its part of the job in time")


def lost_words(host: str, ranks: Sequence[int]) -> str:
    """ "host2 (ranks 2, 3) was lost"."""
    named = ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")
    return f"{host} ({'rank' if len(ranks) == 1 else 'ranks'} {named}) was lost"


class BoardArrivals:
    """A `crew.Arrivals`: a rank is up once it has come to the board of its host.

    Args:
        fleet: of the job.

    Attributes:
        fd: the fleet's own: news of arrivals come with all else.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.fd = fleet.fileno()

    @property
    def over(self) -> bool:
        return any(link.over for link in self._fleet.links)

    def ranks(self) -> set[int]:
        return set().union(*(link.up for link in self._fleet.links))

    def nobody(self) -> bool:
        return self.fd >= 0 and not self.ranks()

    def strays(self) -> int:
        return self._fleet.strays()

    def close(self) -> None:
        self.fd = -1
