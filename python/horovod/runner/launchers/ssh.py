"""Runs ranks on several hosts: an agent on each, started over ssh, or directly where the host is this machine.

An entry of `choose`. It calls all hosts at once, tells each its part of the job, and starts the ranks when every host
has said that it can; `supervision` then follows them to their end.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import secrets
import shlex
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Optional

from horovod._core.errors import InvalidArgumentError
from horovod._dumps.places import signal_number
from horovod._net.secret import new_secret
from horovod.runner.hang import hang_desk, wanted
from horovod.runner.job import Job
from horovod.runner.launchers.base import Launcher, Outcome, Station, Surroundings
from horovod.runner.launchers.destinations import output_directory, rank_streams
from horovod.runner.launchers.places import is_local, rank_environ, with_one_name_here
from horovod.runner.limits import allowed_descriptors
from horovod.runner.remote import addresses, host_keys, ssh_command
from horovod.runner.remote.fleet import BoardArrivals, Fleet
from horovod.runner.remote.gathering import Gathering
from horovod.runner.remote.host_variables import travelling
from horovod.runner.remote.hosts_dumps import HostsDumps
from horovod.runner.remote.link import Link, State, Way
from horovod.runner.streams import Source, Stream
from horovod.runner.supervision import Supervision

_LEAST_PATIENCE_S: Final = 1.0

_log: Final = logging.getLogger("horovod.runner")


class SshLauncher(Launcher):
    """See the head of the file."""

    def why_not(self, job: Job) -> str:
        if all(is_local(name) for name in {slot.hostname for slot in job.slots}):
            return "all hosts are this machine."
        program = ssh_command.missing(job.environ)
        if not program:
            return ""
        return f"there is no program {program!r} here to reach other hosts with; install OpenSSH's client."

    def remarks(self, job: Job) -> list[str]:
        identity = job.settings.ssh_identity_file
        if identity and not os.path.exists(identity):
            raise InvalidArgumentError(f"--ssh-identity-file {identity} does not exist.")
        if job.settings.stdin_rank is not None:
            raise InvalidArgumentError(
                "--stdin-rank works when all ranks are on this machine: nothing carries what you type to other hosts. "
                "Debug there with one that listens on a port, such as debugpy."
            )
        return host_keys.warnings(job.environ, (ssh_command.RSH_AGENT, ssh_command.RSH_ARGS))

    def stations(self, job: Job) -> list[Station]:
        ways = _ways(job._replace(slots=with_one_name_here(job.slots)))
        return [
            Station(way.host, tuple(slot.rank for slot in way.slots), f"by {shlex.join(way.words)}", is_local(way.host))
            for way in ways
        ]

    def run(self, job: Job, surroundings: Surroundings) -> Outcome:
        job = job._replace(slots=with_one_name_here(job.slots))
        base = output_directory(job)
        ways = _ways(job)
        # Three descriptors for each host, and two for each rank whose output goes to files.
        with allowed_descriptors(max(len(ways), job.size // 4 if base else 0)):
            return _run(job, ways, base, surroundings)


def _run(job: Job, ways: Sequence[Way], base: Optional[Path], surroundings: Surroundings) -> Outcome:
    with contextlib.ExitStack() as undo:
        fleet = Fleet(ways)
        undo.callback(fleet.close)
        trouble = _assemble(fleet, job, surroundings)
        if trouble is not None:
            return trouble
        streams = _streams(job, base, surroundings)
        _tell_of_hosts(fleet)
        hang = hang_desk(job, HostsDumps(fleet.links)) if wanted(job) else None
        fleet.go()
        supervision = Supervision(job, fleet, streams, BoardArrivals(fleet), surroundings, hang)
        undo.pop_all()  # from here on it is its own
    return supervision.run()


def _tell_of_hosts(fleet: Fleet) -> None:
    """What the agents have found, before the ranks start."""
    for link in fleet.links:
        _log.info("%s: %s", link.way.host, link.ready["summary"])
        for text in link.ready["remarks"]:
            _log.warning("%s: %s", link.way.host, text)


def _ways(job: Job) -> list[Way]:
    """How each host is reached."""
    settings = job.settings
    patience_s = _patience_s(job)
    shell = ssh_command.shell(job.environ, settings.ssh_port, settings.ssh_identity_file, patience_s)
    line = ssh_command.remote_agent(sys.executable, _python_path())
    found = []
    for host, slots in itertools.groupby(job.slots, key=lambda slot: slot.hostname):
        words, environ = shell.command(host, line), dict(os.environ)
        if is_local(host):
            words = ssh_command.own_agent(sys.executable)
            environ["PYTHONPATH"] = os.pathsep.join(_python_path())
        found.append(Way(words, environ, host, tuple(slots), sys.executable, settings.ssh_port, patience_s))
    return found


def _patience_s(job: Job) -> float:
    return max(_LEAST_PATIENCE_S, float(job.settings.start_timeout_s))


def _python_path() -> list[str]:
    """Where packages are found here besides the interpreter's own places, this one at last."""
    named = [os.path.abspath(place) for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    home = str(Path(__file__).resolve().parents[3])
    installed = {os.path.realpath(sysconfig.get_path(name)) for name in ("purelib", "platlib")}
    return named if home in installed or home in named else [*named, home]


def _assemble(fleet: Fleet, job: Job, surroundings: Surroundings) -> Optional[Outcome]:
    """Until every host can start its ranks; None, or how the job has ended before it began."""
    gathering = Gathering(fleet, _patience_s(job), surroundings)
    outcome = gathering.until(State.GREETED) or _twins(fleet)
    if outcome is not None:
        return outcome
    common = travelling(job.environ)
    common["_HOROVOD_SECRET_KEY"] = new_secret().hex()
    common["HOROVOD_JOB_ID"] = secrets.token_hex(8)
    reached = _addresses(fleet)
    for link in fleet.links:
        link.tell("job", **_part(job, link, common, reached[link], surroundings.shipment is not None))
        if surroundings.shipment is not None:
            link.give(surroundings.shipment.function_fd)
    return gathering.until(State.READY)


def _part(job: Job, link: Link, common: Mapping[str, str], address: str, function: bool) -> dict[str, Any]:
    """What an agent is told of the job."""
    return {
        "command": list(job.command),
        "cwd": job.cwd,
        "env": {**common, "_HOROVOD_ADDRESS": address},
        "ranks": [{"rank": slot.rank, "env": rank_environ(slot)} for slot in link.way.slots],
        "interfaces": list(job.settings.network_interfaces or ()),
        "function": function,
        "affinity": list(job.settings.thread_affinity or ()),
        "dumps": wanted(job),
        "dump_signal": signal_number(job.settings.dump_signal),
    }


def _twins(fleet: Fleet) -> Optional[Outcome]:
    """Two names of one machine would make two hosts of it, whose ranks share no memory."""
    names: dict[str, str] = {}
    for link in fleet.links:
        machine, name = link.hello["machine"], link.way.host
        if machine in names:
            return Outcome(
                (), 0, f"{names[machine]} and {name} are the same machine; give it one name, with all slots."
            )
        names[machine] = name
    return None


def _addresses(fleet: Fleet) -> dict[Link, str]:
    """By which address other hosts reach each."""
    found = {}
    for link in fleet.links:
        if not is_local(link.way.host):
            own = addresses.of_server(link.hello["ssh"])
            found[link] = own or addresses.of_name(link.way.host) or link.hello["own"]
    others = [(link, found[link]) for link in fleet.links if link in found]
    for link in fleet.links:
        if link not in found:
            client = addresses.of_client(others[0][0].hello["ssh"]) if others else ""
            own = client if addresses.is_own(client) else addresses.towards(others[0][1]) if others else ""
            found[link] = own or addresses.of_name(link.way.host)
    return found


def _streams(job: Job, base: Optional[Path], surroundings: Surroundings) -> dict[Source, Stream]:
    """What the output of each rank is fed to."""
    found: dict[Source, Stream] = {}
    for pair in rank_streams(job, base, surroundings):
        for stream in pair:
            found[stream.rank, stream.name] = stream
    if surroundings.shipment is not None:
        for slot in job.slots:
            found[slot.rank, "result"] = surroundings.shipment.expect(slot.rank)
    return found
