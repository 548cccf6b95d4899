"""Runs ranks on several hosts: an agent on each, started over ssh, or directly where the host is this machine.

An entry of `choose`. It calls all hosts at once, tells each its part of the job, and starts the ranks when every host
has said that it can; `supervision` then follows them to their end.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Callable, Optional

from horovod._core.errors import InvalidArgumentError
from horovod.runner.hangs.hang import hang_desk, wanted
from horovod.runner.job import Job
from horovod.runner.launchers.agents import Agents, Variables, by_host
from horovod.runner.launchers.base import Launcher, Outcome, Station, Surroundings
from horovod.runner.launchers.destinations import output_directory, rank_streams
from horovod.runner.machines.hosts import Slot
from horovod.runner.machines.limits import allowed_descriptors
from horovod.runner.machines.this_host import is_local, rank_environ, with_one_name_here
from horovod.runner.processes.streams import Source, Stream
from horovod.runner.remote.launcher_side.fleet import BoardArrivals, Fleet
from horovod.runner.remote.launcher_side.hosts_dumps import HostsDumps
from horovod.runner.remote.ways.by_process import HereOrSsh
from horovod.runner.remote.ways.transport import Transport
from horovod.runner.supervising.supervision import Supervision


class HostsLauncher(Launcher):
    """See the head of the file.

    Args:
        transport: makes what reaches the hosts of a job.
        variables: that tell a rank its place.
    """

    def __init__(self, transport: Callable[[Job], Transport] = HereOrSsh, variables: Variables = rank_environ) -> None:
        self._transport = transport
        self._variables = variables

    def why_not(self, job: Job) -> str:
        if all(is_local(name) for name in {slot.hostname for slot in job.slots}):
            return "all hosts are this machine."
        return self._transport(job).why_not(slot.hostname for slot in job.slots)

    def remarks(self, job: Job) -> list[str]:
        texts = self._transport(job).remarks()
        if job.settings.stdin_rank is not None:
            raise InvalidArgumentError(
                "--stdin-rank works when all ranks are on this machine: standard input is not forwarded to other "
                "hosts. To debug there, use a debugger that listens on a port, such as debugpy."
            )
        return texts

    def stations(self, job: Job) -> list[Station]:
        transport = self._transport(job)
        return stations(job._replace(slots=_named(job, transport)), transport)

    def run(self, job: Job, surroundings: Surroundings) -> Outcome:
        transport = self._transport(job)
        job = job._replace(slots=_named(job, transport))
        base = output_directory(job)
        agents = Agents(job, surroundings.shipment, transport, self._variables)
        # Three descriptors for each host, and two for each rank whose output goes to files.
        hosts = len({slot.hostname for slot in job.slots})
        with allowed_descriptors(max(hosts, job.size // 4 if base else 0)):
            return _run(job, agents, base, surroundings)


def _named(job: Job, transport: Transport) -> tuple[Slot, ...]:
    return job.slots if transport.at_home else with_one_name_here(job.slots)


def stations(job: Job, transport: Transport) -> list[Station]:
    """Where the ranks of a job on several hosts would be started, and how."""
    return [
        Station(host, tuple(slot.rank for slot in slots), f"by {transport.described(host)}", is_local(host))
        for host, slots in by_host(job.slots)
    ]


def _run(job: Job, agents: Agents, base: Optional[Path], surroundings: Surroundings) -> Outcome:
    with contextlib.ExitStack() as undo:
        if surroundings.live is not None:
            surroundings.live.listen(job)
        fleet = Fleet(agents.ways())
        undo.callback(fleet.close)
        trouble = agents.assemble(fleet, surroundings)
        if trouble is not None:
            return trouble
        streams = _streams(job, base, surroundings)
        hang = hang_desk(job, HostsDumps(fleet.links), caller=surroundings.caller) if wanted(job) else None
        fleet.go()
        supervision = Supervision(job, fleet, streams, BoardArrivals(fleet), surroundings, hang)
        undo.pop_all()  # from here on it is its own
    return supervision.run()


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
