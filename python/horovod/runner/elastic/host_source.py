"""Where the hosts of an elastic job and their slots come from: one protocol.

Used by `driver`, and by `launchers.elastic_hosts` until the job begins. `script` asks a discovery script again and
again; hosts that were listed, read from a file or given by a scheduler stay as they are.
"""

from __future__ import annotations

import select
import time
from typing import Optional, Protocol

from horovod.runner.machines.hosts import Host


class HostSource(Protocol):
    """See the head of the file.

    Attributes:
        name: in messages.
        changes: it may name other hosts later.
        problem: why it has named no hosts when it was asked last; empty when it has.
        kind: of the problem, without what may differ from one time to the next.
    """

    name: str
    changes: bool = True
    problem: str = ""
    kind: str = ""

    def wake(self, poller: select.epoll) -> None:
        """From here on this poller wakes when `serve` has something to do."""

    def next_s(self) -> Optional[float]:
        """When to call `serve` in any case, on the monotonic clock; None: never."""

    def serve(self) -> Optional[tuple[Host, ...]]:
        """All hosts, when it has named them since the last call. Does not wait."""

    def written(self) -> list[str]:
        """What the user should read of it, by lines; each once."""
        return []

    def close(self) -> None:
        """Nothing more is wanted of it. May be called twice."""


class FixedHosts(HostSource):
    """Hosts that stay as they are.

    Args:
        hosts: all of them.
    """

    name = "the list of hosts"
    changes = False

    def __init__(self, hosts: tuple[Host, ...]) -> None:
        self._unsaid: Optional[tuple[Host, ...]] = hosts

    def wake(self, poller: select.epoll) -> None:
        """Nothing ever does."""

    def next_s(self) -> Optional[float]:
        return None if self._unsaid is None else time.monotonic()

    def serve(self) -> Optional[tuple[Host, ...]]:
        hosts, self._unsaid = self._unsaid, None
        return hosts

    def close(self) -> None:
        """Nothing is open."""
