"""The agents of a job on several hosts: how each is called, and what it is told.

Used by `ssh` and `elastic_over_hosts`. An agent is started over ssh, or directly where its host is this machine.
"""

from __future__ import annotations

import itertools
import logging
import os
import secrets
import sys
import sysconfig
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Callable, Final, Optional

from horovod._core.errors import InvalidArgumentError
from horovod._dumps.places import signal_number
from horovod._net.secret import new_secret
from horovod.runner.hang import wanted
from horovod.runner.hang_watch import limit_of, watch_interval_s
from horovod.runner.hosts import Slot
from horovod.runner.job import Job
from horovod.runner.launchers.base import Outcome, Surroundings
from horovod.runner.launchers.places import is_local, rank_environ
from horovod.runner.remote import addresses, host_keys, ssh_command
from horovod.runner.remote.fleet import Fleet
from horovod.runner.remote.gathering import Gathering
from horovod.runner.remote.host_variables import travelling
from horovod.runner.remote.link import Link, State, Way
from horovod.runner.shipment import Shipment

_LEAST_PATIENCE_S: Final = 1.0
_LOOPBACK: Final = "127.0.0.1"

_log: Final = logging.getLogger("horovod.runner")

Variables = Callable[[Slot], Mapping[str, str]]


class Agents:
    """See the head of the file.

    Args:
        job: one secret and one number for all its hosts.
        shipment: the function of horovod.run, when the job has one.
        variables: that tell a rank its place.
        elastic: further ranks may come.

    Attributes:
        patience_s: what a host has for each step of its start.
    """

    def __init__(
        self, job: Job, shipment: Optional[Shipment], variables: Variables = rank_environ, elastic: bool = False
    ) -> None:
        self._job = job
        self._shipment = shipment
        self._variables = variables
        self._elastic = elastic
        self._common = travelling(job.environ)
        self._common["_HOROVOD_SECRET_KEY"] = new_secret().hex()
        self._common["HOROVOD_JOB_ID"] = secrets.token_hex(8)
        self.patience_s = max(_LEAST_PATIENCE_S, float(job.settings.start_timeout_s))

    def ways(self) -> list[Way]:
        """To the hosts of the job's ranks."""
        groups = itertools.groupby(self._job.slots, key=lambda slot: slot.hostname)
        return [self.way(host, tuple(slots)) for host, slots in groups]

    def way(self, host: str, slots: tuple[Slot, ...]) -> Way:
        """To one host, for these ranks."""
        settings = self._job.settings
        shell = ssh_command.shell(
            self._job.environ,
            settings.ssh_port,
            settings.ssh_identity_file,
            self.patience_s,
            settings.link_timeout_s,
        )
        timeout_s = float(settings.link_timeout_s)
        words = shell.command(host, ssh_command.remote_agent(sys.executable, _python_path(), timeout_s))
        environ = dict(os.environ)
        if is_local(host):
            words = ssh_command.own_agent(sys.executable, timeout_s)
            environ["PYTHONPATH"] = os.pathsep.join(_python_path())
        return Way(words, environ, host, slots, sys.executable, settings.ssh_port, self.patience_s, timeout_s)

    def why_not(self, host: str) -> str:
        """Why this host cannot be called; empty when it can."""
        return why_no_ssh(self._job.environ, (host,))

    def assemble(self, fleet: Fleet, surroundings: Surroundings) -> Optional[Outcome]:
        """Until every host can start its ranks; None, or how the job has ended before it began."""
        gathering = Gathering(fleet, self.patience_s, surroundings)
        outcome = gathering.until(State.GREETED) or _twins(fleet)
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

    def tell(self, link: Link, slots: Sequence[Slot], address: str) -> None:
        """Tells an agent its part of the job: these ranks, and the address of its host."""
        job = self._job
        link.tell(
            "job",
            link=link.invite_pulses(_LOOPBACK if is_local(link.way.host) else address),
            command=list(job.command),
            cwd=job.cwd,
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

    def tell_further(self, link: Link, slot: Slot) -> None:
        """Tells an agent whose ranks run to start one more."""
        link.tell("further", rank=slot.rank, env=dict(self._variables(slot)))


def why_no_ssh(environ: Mapping[str, str], hosts: Iterable[str]) -> str:
    """Why other hosts than this machine cannot be reached from it; empty when they can, or there are none."""
    others = [name for name in dict.fromkeys(hosts) if not is_local(name)]
    program = ssh_command.missing(environ) if others else ""
    if not program:
        return ""
    named = ", ".join(others[:8]) + (", ..." if len(others) > 8 else "")
    remedy = "install OpenSSH's client (the package openssh-client or openssh-clients)"
    if environ.get(ssh_command.RSH_AGENT):
        remedy = f"{ssh_command.RSH_AGENT} asks for it"
    return (
        f"{named} {'is' if len(others) == 1 else 'are'} not this machine, and there is no program {program!r} here to "
        f"reach other hosts with; {remedy}."
    )


def ssh_remarks(job: Job) -> list[str]:
    """What there is to say of the way to other hosts. Raises InvalidArgumentError when the file of --ssh-identity-file
    does not exist."""
    identity = job.settings.ssh_identity_file
    if identity and not os.path.exists(identity):
        raise InvalidArgumentError(f"--ssh-identity-file {identity} does not exist.")
    return host_keys.warnings(job.environ, (ssh_command.RSH_AGENT, ssh_command.RSH_ARGS))


def tell_of_host(link: Link) -> None:
    """What an agent has found, before its ranks start."""
    _log.info("%s: %s", link.way.host, link.ready["summary"])
    for text in link.ready["remarks"]:
        _log.warning("%s: %s", link.way.host, text)


def addresses_of(links: Sequence[Link]) -> dict[Link, str]:
    """By which address other hosts reach each; all have been greeted."""
    found = {}
    for link in links:
        if not is_local(link.way.host):
            own = addresses.of_server(link.hello["ssh"])
            found[link] = own or addresses.of_name(link.way.host) or link.hello["own"]
    others = [(link, found[link]) for link in links if link in found]
    for link in links:
        if link not in found:
            client = addresses.of_client(others[0][0].hello["ssh"]) if others else ""
            own = client if addresses.is_own(client) else addresses.towards(others[0][1]) if others else ""
            found[link] = own or addresses.of_name(link.way.host)
    return found


def same_machine(link: Link, others: Sequence[Link]) -> str:
    """The name by which the job has this host already; empty: it is another one."""
    machine = link.hello["machine"]
    return next((other.way.host for other in others if other.hello and other.hello["machine"] == machine), "")


def _twins(fleet: Fleet) -> Optional[Outcome]:
    """Two names of one machine would make two hosts of it, whose ranks share no memory."""
    for number, link in enumerate(fleet.links):
        if twin := same_machine(link, fleet.links[:number]):
            text = f"{twin} and {link.way.host} are the same machine; give it one name, with all slots."
            return Outcome((), 0, text)
    return None


def _python_path() -> list[str]:
    """Where packages are found here besides the interpreter's own places, this one at last."""
    named = [os.path.abspath(place) for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    home = str(Path(__file__).resolve().parents[3])
    installed = {os.path.realpath(sysconfig.get_path(name)) for name in ("purelib", "platlib")}
    return named if home in installed or home in named else [*named, home]
