"""The agents of a job on several hosts: what each is sent.

Used by `ssh` and `elastic_over_hosts`, whose transport calls them.
"""

from __future__ import annotations

import itertools
import logging
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Callable, Final, Optional

from horovod._dumps.paths import signal_number
from horovod._net.secret import new_secret
from horovod.runner.hangs.hang import wanted
from horovod.runner.hangs.hang_watch import limit_of, watch_interval_s
from horovod.runner.job import Job
from horovod.runner.launchers.base import Outcome, Surroundings
from horovod.runner.machines import addresses
from horovod.runner.machines.host_variables import travelling
from horovod.runner.machines.hosts import Slot
from horovod.runner.machines.this_host import is_local, rank_environ
from horovod.runner.processes.shipment import Shipment
from horovod.runner.remote.launcher_side.fleet import Fleet
from horovod.runner.remote.launcher_side.gathering import Gathering
from horovod.runner.remote.launcher_side.link import Link, State, Way
from horovod.runner.remote.ways.by_process import patience_s
from horovod.runner.remote.ways.transport import Transport

_LOOPBACK: Final = "127.0.0.1"

_log: Final = logging.getLogger("horovod.runner")

Variables = Callable[[Slot], Mapping[str, str]]


class Agents:
    """See the head of the file.

    Args:
        job: one secret and one number for all its hosts.
        shipment: the function of horovod.run, when the job has one.
        transport: reaches the hosts.
        variables: that tell a rank its place.
        elastic: further ranks may come.

    Attributes:
        transport: as given.
        patience_s: what a host has for each step of its start.
    """

    def __init__(
        self,
        job: Job,
        shipment: Optional[Shipment],
        transport: Transport,
        variables: Variables = rank_environ,
        elastic: bool = False,
    ) -> None:
        self._job = job
        self.transport = transport
        self._shipment = shipment
        self._variables = variables
        self._elastic = elastic
        self._common = dict(job.environ) if transport.at_home else travelling(job.environ)
        if transport.private:
            self._common["_HOROVOD_SECRET_KEY"] = new_secret().hex()
        self._common["HOROVOD_JOB_ID"] = secrets.token_hex(8)
        self.patience_s = patience_s(job.settings)

    def ways(self) -> list[Way]:
        """To the hosts of the job's ranks."""
        return [self.way(host, slots) for host, slots in by_host(self._job.slots)]

    def way(self, host: str, slots: tuple[Slot, ...]) -> Way:
        """To one host, for these ranks."""
        return Way(self.transport, host, slots, float(self._job.settings.link_timeout_s))

    def assemble(self, fleet: Fleet, surroundings: Surroundings) -> Optional[Outcome]:
        """Until every host can start its ranks; None, or how the job has ended before it began."""
        gathering = Gathering(fleet, self.patience_s, surroundings)
        outcome = gathering.until(State.GREETED) or self._twins(fleet)
        if outcome is not None:
            return outcome
        reached = addresses_of(fleet.links)
        for link in fleet.links:
            self.tell(link, link.way.slots, reached[link])
        outcome = gathering.until(State.READY)
        if outcome is None:
            for link in fleet.links:
                tell_of_host(link)
        return outcome

    def twin(self, link: Link, others: Sequence[Link]) -> str:
        """The name by which the job has this host already; empty: it is another one."""
        if self.transport.at_home:
            return ""
        machine = link.hello["machine"]
        return next((other.way.host for other in others if other.hello and other.hello["machine"] == machine), "")

    def _twins(self, fleet: Fleet) -> Optional[Outcome]:
        """Two names of one machine would make two hosts of it, whose ranks share no memory."""
        for number, link in enumerate(fleet.links):
            if twin := self.twin(link, fleet.links[:number]):
                text = f"{twin} and {link.way.host} are the same machine; give it one name, with all slots."
                return Outcome((), 0, text)
        return None

    def tell(self, link: Link, slots: Sequence[Slot], address: str) -> None:
        """Tells an agent its part of the job: these ranks, and the address of its host."""
        job = self._job
        link.tell(
            "job",
            link=link.invite_pulses(self._address_of_pulses(link, address)),
            command=list(job.command),
            cwd=job.cwd,
            at_home=self.transport.at_home,
            env={**self._common, "_HOROVOD_ADDRESS": address},
            ranks=[{"rank": slot.rank, "env": dict(self._variables(slot))} for slot in slots],
            interfaces=list(job.settings.network_interfaces or ()),
            function=self._shipment is not None,
            affinity=list(job.settings.thread_affinity or ()),
            dumps=wanted(job) and not self._elastic,
            dump_signal=signal_number(job.settings.dump_signal),
            elastic=self._elastic,
            vitals_every=watch_interval_s(limit_of(job)),
        )
        if self._shipment is not None:
            link.give(self._shipment.function_fd)

    def _address_of_pulses(self, link: Link, address: str) -> str:
        """Where the agent can be asked whether it lives, by datagrams under a key; empty: nowhere."""
        if not self.transport.private:
            return ""
        return _LOOPBACK if is_local(link.way.host) else address

    def tell_further(self, link: Link, slot: Slot) -> None:
        """Tells an agent whose ranks run to start one more."""
        link.tell("further", rank=slot.rank, env=dict(self._variables(slot)))


def by_host(slots: Iterable[Slot]) -> list[tuple[str, tuple[Slot, ...]]]:
    """The hosts of a job, each with the places of its ranks."""
    return [(host, tuple(group)) for host, group in itertools.groupby(slots, key=lambda slot: slot.hostname)]


def tell_of_host(link: Link) -> None:
    """What an agent has found, before its ranks start."""
    _log.info("%s: %s", link.way.host, link.ready["summary"])
    for text in link.ready["remarks"]:
        _log.warning("%s: %s", link.way.host, text)


def addresses_of(links: Sequence[Link]) -> dict[Link, str]:
    """By which address other hosts reach each; all have been greeted."""
    found = {}
    for link in links:
        if link.peer:
            found[link] = link.peer
        elif not is_local(link.way.host):
            own = addresses.of_server(link.hello["ssh"])
            found[link] = own or addresses.of_name(link.way.host) or link.hello["own"]
    others = [(link, found[link]) for link in links if link in found]
    for link in links:
        if link not in found:
            client = addresses.of_client(others[0][0].hello["ssh"]) if others else ""
            own = client if addresses.is_own(client) else addresses.towards(others[0][1]) if others else ""
            found[link] = own or addresses.of_name(link.way.host)
    return found
