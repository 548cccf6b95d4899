"""On which hosts a job runs: those that were named, those of a scheduler's allocation, or this machine.

Used by `job`. What a name or an allocation means is in `hosts` and `allocations`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, Optional, Union

from horovod._core.settings import Settings
from horovod.runner.allocations import choose
from horovod.runner.machines import cores, hosts

if TYPE_CHECKING:
    from horovod.runner.allocations.base import Allocation


class Hosts(NamedTuple):
    """See the head of the file.

    Attributes:
        named: by -H or a hostfile; empty when there were none.
        allocation: of a scheduler; None when hosts were named, and outside of any.
        without_number: the first host that -H gives no number of slots; empty when there is none.
    """

    named: tuple[hosts.Host, ...]
    allocation: Optional[Allocation]
    without_number: str = ""

    @staticmethod
    def of(settings: Settings, environ: Mapping[str, str]) -> Hosts:
        """The strongest of the three.

        Raises:
            InvalidArgumentError: what was named cannot be understood, or the allocation.
        """
        if settings.host_discovery_script:
            return Hosts((), None)  # it has not been asked yet
        if settings.hosts:
            return Hosts(tuple(hosts.parse_hosts(settings.hosts)), None, hosts.without_number(settings.hosts))
        if settings.hostfile:
            return Hosts(tuple(hosts.read_hostfile(settings.hostfile)), None)
        return Hosts((), choose.allocation(environ))

    def known(self) -> tuple[hosts.Host, ...]:
        """All of them, whether they get ranks or not; nothing where none were named or given."""
        return self.named or (tuple(self.allocation.hosts) if self.allocation else ())

    def place(self, number: Union[int, str, None], environ: Mapping[str, str], called: str) -> list[hosts.Slot]:
        """The places of the ranks, in the order of the hosts.

        Args:
            number: of ranks; "auto", and None in an allocation: as many as there are slots.
            environ: counts the ranks of this machine for "auto", when there is no slot to count.
            called: how the user has given the number.

        Raises:
            InvalidArgumentError: there are too few slots.
        """
        known = self.known()
        if number is None or number == "auto":
            count = sum(host.slots for host in known) if known else cores.automatic_ranks(environ)
        else:
            count = int(number)
        if not known or self._crowded(count):
            known = (hosts.Host(known[0].hostname if known else "localhost", count),)
        return hosts.assign(known, count, count, called, self.without_number)

    def remarks(self, size: int) -> list[str]:
        """What there is to say of this many ranks there."""
        if self.allocation is None or not self._crowded(size):
            return []
        only = self.allocation.hosts[0]
        return [
            f"{size} ranks share {self.allocation.scheduler}'s allocation of {only.slots} "
            f"slot{'s' * (only.slots > 1)} on {only.hostname}."
        ]

    def _crowded(self, count: int) -> bool:
        """An allocation on one host leaves no doubt where further ranks are to run."""
        return self.allocation is not None and len(self.allocation.hosts) == 1 and count > self.allocation.slots
