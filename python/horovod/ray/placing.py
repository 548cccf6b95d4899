"""Which worker is which rank, and what each gets: from what workers say of themselves to placements. Pure.

Workers of one machine, and of the same namespaces of it, are one host whose ranks share memory, whatever nodes of Ray
they belong to; containers of one machine are hosts of their own.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Optional

from horovod._net.clusters.placement import MeetingPoint, Placement
from horovod.runner.machines.hosts import Slot
from horovod.runner.machines.this_host import rank_environ

LAUNCHER: Final = "Ray"
VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
_SHORT: Final = 8  # digits of a node's number that people compare


class Facts(NamedTuple):
    """What a worker says of itself.

    Attributes:
        machine: equal for workers that can share memory, and for no others.
        node: Ray's number of its node.
        address: of that node.
        pid: of its process.
        gpus: the GPUs that Ray has given it.
    """

    machine: str
    node: str
    address: str
    pid: int
    gpus: Sequence[str] = ()

    def words(self) -> str:
        """Its node, as messages name it."""
        return f"node {self.node[:_SHORT]} at {self.address}"


class Place(NamedTuple):
    """What a worker gets.

    Attributes:
        placement: for `given_placement`.
        environ: variables that it sets.
        title: what Ray writes before its lines.
    """

    placement: Placement
    environ: Mapping[str, str]
    title: str


def order(workers: Sequence[Facts]) -> list[int]:
    """The workers in the order of ranks: those of a machine together, and of a node; the machine of the first worker
    first."""
    machines = list(dict.fromkeys(each.machine for each in workers))
    nodes = list(dict.fromkeys(each.node for each in workers))
    return sorted(
        range(len(workers)), key=lambda each: (machines.index(workers[each].machine), nodes.index(workers[each].node))
    )


def is_one_host(ranks: Sequence[Facts]) -> bool:
    """All of them can share memory, so that they need no address to meet at."""
    return len({each.machine for each in ranks}) == 1


def places(
    ranks: Sequence[Facts],
    job: str,
    secret: bytes,
    where: Optional[tuple[str, int]],
    environ: Mapping[str, str],
    nics: Sequence[str] = (),
) -> list[Place]:
    """What each rank gets.

    Args:
        ranks: in their order.
        job: its name, which no other job has.
        secret: of the job.
        where: the address and port where they meet; None: they are all on one host.
        environ: variables of all of them.
        nics: network interfaces for traffic between hosts.
    """
    machines = [each.machine for each in ranks]
    hosts = [machines.index(machine) for machine in machines]
    point = MeetingPoint(*where, "Ray, whose nodes reach one another there", job, settable=False) if where else None
    first = Placement(
        0, len(ranks), 0, 1, 0, 1, LAUNCHER, job, secret=secret, interfaces=tuple(nics), meeting_point=point
    )
    found = []
    for rank, each in enumerate(ranks):
        placement = dataclasses.replace(first, rank=rank).placed(hosts)
        own = {**rank_environ(_slot(placement, each.node)), **_visible(rank, ranks)}
        found.append(Place(placement, {**environ, **own}, f"rank {rank}, {each.words()}"))
    return found


def _slot(place: Placement, node: str) -> Slot:
    return Slot(node, place.rank, place.local_rank, place.cross_rank, place.size, place.local_size, place.cross_size)


def _visible(rank: int, ranks: Sequence[Facts]) -> dict[str, str]:
    """The GPUs of all workers of this one's machine, so that they reach one another's, in the order of local ranks."""
    there = [gpu for each in ranks if each.machine == ranks[rank].machine for gpu in each.gpus]
    return {VISIBLE: ",".join(dict.fromkeys(there))} if there else {}


def in_words(ranks: Sequence[Facts]) -> str:
    """Where they are, for the user."""
    nodes = list(_spans(ranks))
    listed = "; ".join(f"{words} has rank{'s' if ' ' in span or '-' in span else ''} {span}" for words, span in nodes)
    workers = f"{len(ranks)} worker{'s' if len(ranks) > 1 else ''}"
    return f"{workers} on {len(nodes)} node{'s' if len(nodes) > 1 else ''}: {listed}."


def _spans(ranks: Sequence[Facts]) -> Iterator[tuple[str, str]]:
    for _, group in itertools.groupby(enumerate(ranks), key=lambda each: each[1].node):
        members = list(group)
        first, last = members[0][0], members[-1][0]
        yield members[0][1].words(), f"{first}" if first == last else f"{first}-{last}"
