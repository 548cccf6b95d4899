"""Rows of collectives between hosts: ours, Open MPI over TCP and gloo, and the gradients of ResNet-50 in one step.

Used by `over_hosts`. The size of a row is that of a rank's input, rounded down to whole shares.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from contenders import on_hosts
from harness.contest import Contest, Part
from harness.row import Row, size_label
from ranks import networks

OPERATIONS = ("allreduce", "broadcast", "allgather", "reducescatter", "alltoall")
GRADIENTS = "gradients"
SIZES = (4, 1 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20)
_SCATTERED = ("reducescatter", "alltoall")
_OURS = {on_hosts.OURS: "ours", on_hosts.FLAT: "info"}
_PEERS = {"openmpi": ("views", "separate"), "torch gloo": ("views",)}


def least_bytes(operation: str, size_bytes: int, hosts: int, local_size: int) -> float:
    """What a host with several ranks, the busiest one, must at least send or receive over its link.

    With n hosts of m ranks, and s bytes in each rank: allreduce 2 (n-1)/n s, because a host reduces its ranks' tensors
    before it sends; broadcast s; allgather (n-1) m s, what the other hosts have, which is (n-1)/n of the whole;
    reducescatter (n-1)/n s; alltoall (n-1)/n m s, what the ranks of a host have for those of others.
    """
    others = (hosts - 1) / hosts
    factors = {
        "allreduce": 2 * others,
        "broadcast": 1,
        "allgather": (hosts - 1) * local_size,
        "reducescatter": others,
        "alltoall": others * local_size,
    }
    return factors[operation] * size_bytes


def collective_rows(contest: Contest, operations: Sequence[str], sizes: Sequence[int]) -> Iterator[Row]:
    """A row for each operation and size."""
    for operation in operations:
        # What is scattered needs as many elements for every rank, and one at least.
        share = 4 * contest.ranks if operation in _SCATTERED else 4
        for size in sorted({max(size, share) for size in sizes}):
            elems = size // share * share // 4
            order = {"task": "collective", "operation": operation, "elems": elems, "variant": ""}
            parts = [Part(name, kind, name, order) for name, kind in _OURS.items() if contest.knows(name)]
            parts += [Part(name, "peer", name, order) for name in _PEERS]
            name = f"{operation} {size_label(size)}"
            yield Row(name, contest.measure(parts, what=name), operation=operation, size_bytes=size)


def gradient_rows(contest: Contest, names: Sequence[str]) -> Iterator[Row]:
    """The gradients of these networks, one step of each; ours as they come."""
    for network in names:
        sizes = networks.gradient_sizes(networks.all_networks()[network])
        orders = {mode: {"task": "gradients", "mode": mode, "sizes": sizes} for mode in ("async", "views", "separate")}
        parts = [Part(name, kind, name, orders["async"]) for name, kind in _OURS.items() if contest.knows(name)]
        parts += [
            Part(f"{name}, {mode}", "peer", name, orders[mode]) for name, modes in _PEERS.items() for mode in modes
        ]
        name = f"{network} gradients"
        yield Row(name, contest.measure(parts, what=name), operation="allreduce", size_bytes=4 * sum(sizes))
