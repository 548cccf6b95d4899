"""Assigns the ranks of an epoch to workers. Pure.

Used by `machine`. Survivors keep their order, and newcomers follow; rank 0 is the first of the survivors that have
the newest commit, because the others take the state from it. Survivors keep their local ranks too, by which they have
chosen their GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from horovod.runner.machines.hosts import Slot

# Of a state: the epoch in which it was made equal on all ranks the last time, and the commits since. Two ranks with
# equal versions hold equal states; the greater version is the newer state.
Version = tuple[int, int]
NO_STATE: Version = (-1, 0)


class Seat(NamedTuple):
    """A worker's place in an epoch: its rank, and all that goes with it."""

    worker: int
    slot: Slot


def order(survivors: Sequence[int], versions: Mapping[int, Version], newcomers: Sequence[int]) -> list[int]:
    """The workers by their new ranks.

    Args:
        survivors: of the epoch before, by rank.
        versions: of their states.
        newcomers: workers that have never had a place.
    """
    if not survivors:
        return list(newcomers)
    newest = max(versions[worker] for worker in survivors)
    first = next(worker for worker in survivors if versions[worker] == newest)
    return [first, *(worker for worker in survivors if worker != first), *newcomers]


def seats(
    workers: Sequence[int], host_of: Mapping[int, str], home_of: Mapping[int, int] = MappingProxyType({})
) -> tuple[Seat, ...]:
    """The places of these workers, by rank. Ranks of a host need not be consecutive.

    Args:
        workers: by rank.
        host_of: each of them.
        home_of: survivors: the local rank of their first epoch.
    """
    local_ranks = _local_ranks(workers, host_of, home_of)
    hosts = [host_of[worker] for worker in workers]
    counts = {host: hosts.count(host) for host in dict.fromkeys(hosts)}
    found = []
    for rank, (worker, host) in enumerate(zip(workers, hosts)):
        local_rank = local_ranks[worker]
        peers = [name for name, count in counts.items() if count > local_rank]
        numbers = (rank, local_rank, peers.index(host), len(workers), counts[host], len(peers))
        found.append(Seat(worker, Slot(host, *numbers)))
    return tuple(found)


def _local_ranks(workers: Sequence[int], host_of: Mapping[int, str], home_of: Mapping[int, int]) -> dict[int, int]:
    """From 0 on each host, without a gap. A survivor has that of its first epoch, unless its host has too few ranks for
    it now: then it has a free one until they are enough again. So no newcomer gets the number of a survivor's GPU."""
    found: dict[int, int] = {}
    for host in dict.fromkeys(host_of[worker] for worker in workers):
        here = [worker for worker in workers if host_of[worker] == host]
        kept = {worker: home_of[worker] for worker in here if home_of.get(worker, len(here)) < len(here)}
        free = sorted(set(range(len(here))) - set(kept.values()))
        found.update(kept)
        found.update(zip((worker for worker in here if worker not in kept), free))
    return found
