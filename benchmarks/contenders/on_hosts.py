"""The contenders of `peers` with their ranks on several hosts: started on the first of them, over its ssh.

Used by `over_hosts`. Starts no job.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Sequence

from hosts.network import Network

from contenders import peers
from contenders.peers import Contender

OURS, FLAT = "ours (numpy)", "ours, flat"
_INTERFACE = "eth0"
_FLAT = ("--no-hierarchical-allreduce", "--no-hierarchical-allgather")


def find(network: Network, local_size: int, create: bool) -> list[Contender]:
    """Ours, Open MPI over TCP, and gloo, also where missing.

    Args:
        network: of the hosts.
        local_size: ranks of each host. With several, ours takes part a second time, flat.
        create: make missing environments.
    """
    names = ",".join(f"{host.name}:{local_size}" for host in network.hosts)
    found = [_ours(network, names, OURS)]
    if local_size > 1:
        found.append(_ours(network, names, FLAT, *_FLAT))
    return [*found, _open_mpi(network, names, local_size, create), _gloo(network, local_size)]


def _ours(network: Network, names: str, name: str, *options: str) -> Contender:
    # By ssh everywhere but here, as users have it.
    launcher = (sys.executable, "-m", "horovod.runner", "-np", "{n}", "-H", names, *options)
    environment = {"PYTHONPATH": str(peers.ROOT / "python")}
    made = dataclasses.replace(peers.ours("numpy"), name=name, environment=environment)
    return dataclasses.replace(made, launcher=(*network[1].entry(), *launcher))


def _open_mpi(network: Network, names: str, local_size: int, create: bool) -> Contender:
    found = peers.mpi("openmpi", create)
    transports = "tcp,self" if local_size == 1 else "tcp,self,sm"
    settings = {"pml": "ob1", "btl": transports, "btl_tcp_if_include": _INTERFACE}
    if local_size * len(network.hosts) > len(os.sched_getaffinity(0)):
        # Each host believes that the cores are its own; whoever waits has to give them to the ranks of the others.
        settings["mpi_yield_when_idle"] = "1"
    words = [word for name, value in settings.items() for word in ("--mca", name, value)]
    return dataclasses.replace(found, launcher=(*network[1].entry(), *found.launcher, "--host", names, *words))


def _gloo(network: Network, local_size: int) -> Contender:
    places: Sequence[tuple[str, ...]] = [tuple(host.entry()) for host in network.hosts for _ in range(local_size)]
    return dataclasses.replace(peers.gloo(), places=tuple(places), environment={"GLOO_SOCKET_IFNAME": _INTERFACE})
