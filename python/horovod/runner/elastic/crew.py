"""What the crew of an elastic job can do besides: start further workers, and talk with them. Used by `driver`.

There is one for this machine and one for several hosts (`launchers.elastic_here`, `launchers.elastic_over_hosts`). A
worker is a rank of the crew under the number by which it was started.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional, Protocol

from horovod.runner.launchers.base import Outcome, Surroundings
from horovod.runner.processes.crew import Crew, Joined
from horovod.runner.processes.streams import Source, Stream


class ElasticCrew(Crew, Protocol):
    """See the head of the file. Its events are also what workers ask (`Asks`, `Bereft`); what one has said before it
    ended comes before its end. A `HostLost` names a host, also one that could not be used at all.

    Attributes:
        streams: of the first workers.
    """

    streams: Mapping[Source, Stream]

    def assemble(self, surroundings: Surroundings) -> Optional[Outcome]:
        """Has the first workers start; None, or how the job has ended before it began."""

    def unusable(self) -> Mapping[str, str]:
        """Of a job that has not begun: the hosts that cannot be used, and why."""

    def begin(self, worker: int, host: str) -> Joined:
        """Starts one more worker; what is to be read from it."""

    def tell(self, worker: int, message: Mapping[str, Any]) -> None:
        """Tells a worker something, in the words of `horovod._net.roster`."""

    def renumber(self, worker: int, rank: int) -> None:
        """What the worker writes is shown under this rank from here on."""

    def address(self, host: str) -> str:
        """The address at which other hosts reach this one now; empty: the one given when the worker was started."""

    def release(self, host: str) -> None:
        """Ends what is kept on a host without workers."""

    def strays(self) -> int:
        """See `crew.Arrivals`."""
