"""The nodes of a Ray cluster as the hosts of an elastic job, with slots. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Optional

from horovod.ray.placing import SHORT
from horovod.runner.machines.hosts import Host

_NEXT_TO_NOTHING: Final = 1e-6  # Ray counts in ten-thousandths


class Node(NamedTuple):
    """A node that lives.

    Attributes:
        number: Ray's.
        address, hostname: by which a user's discovery may name it.
        total, free: its resources.
    """

    number: str
    address: str
    hostname: str
    total: Mapping[str, float]
    free: Mapping[str, float]

    @property
    def name(self) -> str:
        """Of the host, in messages."""
        return f"{self.address}/{self.number[:SHORT]}"


class Mine(NamedTuple):
    """The workers of the job on a node.

    Attributes:
        workers: that live, or are being started.
        is_settled: Ray's count of what is free has all of them.
    """

    workers: int = 0
    is_settled: bool = True


def alive(nodes: Sequence[Mapping[str, Any]], free: Optional[Mapping[str, Mapping[str, float]]]) -> list[Node]:
    """Those that live.

    Args:
        nodes: as `ray.nodes` lists them.
        free: resources by node; None: Ray does not say.
    """
    return [
        Node(
            each["NodeID"],
            each["NodeManagerAddress"],
            each.get("NodeManagerHostname", ""),
            each["Resources"],
            each["Resources"] if free is None else free.get(each["NodeID"], {}),
        )
        for each in nodes
        if each.get("Alive")
    ]


def fitting(resources: Mapping[str, float], needs: Mapping[str, float]) -> int:
    """How many workers fit into these resources."""
    return min(int((resources.get(name, 0.0) + _NEXT_TO_NOTHING) / amount) for name, amount in needs.items())


def hosts(
    nodes: Sequence[Node],
    needs: Mapping[str, float],
    mine: Mapping[str, Mine],
    allowed: Optional[Mapping[str, int]] = None,
) -> tuple[Host, ...]:
    """The hosts with slots: for the workers that are there, and for as many more as fit.

    Args:
        nodes: that live.
        needs: of a worker.
        mine: by the number of the node.
        allowed: slots by number, address or host name of nodes, as a user's discovery finds them; None: all.
    """
    left = None if allowed is None else dict(allowed)
    found = []
    for node in nodes:
        own = mine.get(node.number, Mine())
        more = fitting(node.free, needs) if own.is_settled else 0
        slots = max(own.workers, min(own.workers + more, fitting(node.total, needs)))
        if left is not None:
            key = next((each for each in (node.number, node.address, node.hostname) if each in left), "")
            slots = min(slots, left.get(key, 0))
            left[key] = left.get(key, 0) - slots
        if slots:
            found.append(Host(node.name, slots))
    return tuple(found)


def by_address(nodes: Sequence[Node], needs: Mapping[str, float]) -> dict[str, int]:
    """Slots by address, if nothing else ran there."""
    found: dict[str, int] = {}
    for node in nodes:
        if slots := fitting(node.total, needs):
            found[node.address] = found.get(node.address, 0) + slots
    return found


def lacking(nodes: Sequence[Node], needs: Mapping[str, float], wanted: int) -> bool:
    """The cluster has no room for so many workers, even if nothing else ran there."""
    return sum(fitting(node.total, needs) for node in nodes) < wanted
