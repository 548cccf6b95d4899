"""What a crew is, and which events it reports: the processes of a job's ranks, on this host or on others.

Used by `supervision`, which follows a crew to its end, and by those who have one: `process` for this host,
`remote.launcher_side.fleet` for several.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Optional, Protocol, Union

from horovod.runner.live.figures import Reading
from horovod.runner.processes.streams import Source, Stream
from horovod.runner.processes.vitals import Vitals


class Started(NamedTuple):
    """The rank's program runs."""

    rank: int
    pid: int


class Refused(NamedTuple):
    """The rank could not be started: there was no process for it, or its program could not be executed (`forked`)."""

    rank: int
    error: int
    forked: bool


class Exited(NamedTuple):
    """The rank has ended; events come in the order of deaths. `how` says it in words; `peak_bytes` is the most memory
    that its largest process has had, 0 when that is not known."""

    rank: int
    status: int
    at_s: float
    how: str = ""
    peak_bytes: int = 0


class Output(NamedTuple):
    """The next bytes of one stream of a rank whose pipes are on another host; none: the stream has ended."""

    rank: int
    stream: str
    data: bytes


class HostLost(NamedTuple):
    """A host cannot be reached any more, or its agent has died: these ranks of it are gone, or will be in a moment.
    `why` is a sentence with its name. `silent`: nothing was heard from it, or not in time, so it may come back."""

    ranks: tuple[int, ...]
    why: str
    host: str = ""
    silent: bool = False


class Done(NamedTuple):
    """All processes of the job are gone, and its directories too. `lost`: their keeper itself was killed."""

    lost: bool = False


class Joined(NamedTuple):
    """One more rank is being started, in a job that grows; its streams are to be read."""

    rank: int
    streams: Mapping[Source, Stream]


class Survived(NamedTuple):
    """The rank has ended, and the job goes on without it."""

    rank: int


class Asks(NamedTuple):
    """The program of this rank, by the number under which it was started, has left its epoch, or comes for the first
    time, and asks for its next place; `version` says how new its state is, `why` what kept it from meeting the others
    of its epoch."""

    rank: int
    version: tuple[int, int]
    why: str = ""


class Bereft(NamedTuple):
    """The program of this rank ends because another rank was lost, and not by a mistake of its own."""

    rank: int


class Renumbered(NamedTuple):
    """From here on these ranks are known to the user by other numbers than those under which they were started."""

    numbers: Mapping[int, int]


class Said(NamedTuple):
    """A message to the user about the job."""

    text: str


class GivenUp(NamedTuple):
    """The job cannot go on; its ranks are to be ended."""

    why: str


class Finished(NamedTuple):
    """The job finished successfully: until then an elastic job goes on, even while it has no ranks."""


# Of a job whose ranks change. `Asks` and `Bereft` are only for the driver, which decides on places.
Change = Union[Joined, Survived, Asks, Bereft, Renumbered, Said, GivenUp, Finished]
Event = Union[Started, Refused, Exited, Output, HostLost, Change, Done]


class Crew(Protocol):
    """The processes of a job, being started or running."""

    def fileno(self) -> int:
        """Descriptor that is readable when `events` has something."""

    def events(self) -> list[Event]:
        """What has happened since. To be called when the descriptor is readable, or `next_s` is over."""

    def next_s(self) -> Optional[float]:
        """When `events` is to be called though the descriptor is not readable, on the monotonic clock; None: never."""

    def taken(self) -> None:
        """The output that had come has been written; there is room for more."""

    def signal(self, ranks: Iterable[int], number: int) -> None:
        """Sends a signal to the process groups of these ranks; those that have ended are passed over."""

    def pause(self) -> None:
        """The launcher is going to be stopped for a while; the ranks go on."""

    def resume(self) -> None:
        """The launcher is back."""

    def vitals(self) -> Mapping[int, Optional[Vitals]]:
        """What ranks have used by now; None: not known. Those of other hosts are there when agents have reported."""

    def figures(self) -> Mapping[int, Reading]:
        """What ranks have counted, by the number under which they were started; of those that have ended, the last.
        Those of other hosts come a moment after they are asked for the first time."""

    def finish(self) -> None:
        """All ranks have ended: kills what they have left and removes the directories; `Done` follows."""

    def close(self) -> None:
        """Ends the job at once, if it is not over yet, and waits for that."""


class Arrivals(Protocol):
    """Which ranks have called hvd.init()."""

    @property
    def fd(self) -> int:
        """Readable when something has changed; -1 when only looking tells."""

    @property
    def over(self) -> bool:
        """A rank that was there has left again: all are connected, or it has given up."""

    def ranks(self) -> set[int]:
        """The ranks that are up, or were."""

    def nobody(self) -> bool:
        """No rank has come at all. False when that cannot be known, and after `close`."""

    def strays(self) -> int:
        """The number of processes that called hvd.init() without the launcher's variables, as far as it is known."""

    def close(self) -> None:
        """Ends the watch."""
