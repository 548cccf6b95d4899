"""Which worker is which rank, and what each gets: from what workers say of themselves to placements. Pure.

Workers of one machine, and of the same namespaces of it, are one host whose ranks share memory, whatever nodes of Ray
they belong to; containers of one machine are hosts of their own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Optional

from horovod._net.clusters.placement import MeetingPoint, Placement
from horovod.runner.elastic.assignment import seats
from horovod.runner.machines.this_host import rank_environ

LAUNCHER: Final = "Ray"
VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
SHORT: Final = 8  # digits of a node's number that people compare


class Facts(NamedTuple):
    """What a worker says of itself.

    Attributes:
        machine: equal for workers that can share memory, and for no others.
        node: Ray's number of its node.
        address: of that node.
        pid: of its process.
        gpus: the GPUs that Ray has given it.
        home: of an elastic job: the local rank that it had first; None: it has had none.
    """

    machine: str
    node: str
    address: str
    pid: int
    gpus: Sequence[str] = ()
    home: Optional[int] = None

    def words(self) -> str:
        """Its node, as messages name it."""
        return f"node {self.node[:SHORT]} at {self.address}"


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
    machines = {rank: each.machine for rank, each in enumerate(ranks)}
    homes = {rank: each.home for rank, each in enumerate(ranks) if each.home is not None}
    slots = [each.slot for each in seats(range(len(ranks)), machines, homes)]
    by_local_rank = sorted(zip(slots, ranks), key=lambda each: each[0].local_rank)
    point = MeetingPoint(*where, "Ray, whose nodes reach one another there", job, settable=False) if where else None
    found = []
    for slot, each in zip(slots, ranks):
        numbers = {name: value for name, value in slot._asdict().items() if name != "hostname"}
        placement = Placement(
            **numbers,
            launcher=LAUNCHER,
            job_key=job,
            secret=secret,
            interfaces=tuple(nics),
            meeting_point=point,
            keeps_local_rank=bool(homes),
        )
        # The GPUs of all workers of the machine, so that they reach one another's, in the order of local ranks.
        gpus = [gpu for other, facts in by_local_rank if other.hostname == slot.hostname for gpu in facts.gpus]
        visible = {VISIBLE: ",".join(dict.fromkeys(gpus))} if gpus else {}
        own = {**rank_environ(slot._replace(hostname=each.node)), **visible}
        found.append(Place(placement, {**environ, **own}, f"rank {slot.rank}, {each.words()}"))
    return found


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
