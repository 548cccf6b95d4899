"""The tables of `simulate.py`, as Markdown lines. Each says what it is made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from harness.row import size_label
from ranks import networks
from rows import between_hosts

from simulation.tool import Machines, Simulator

# Pictures a second of one P100 with batches of 64, synthetic data: TensorFlow's published benchmarks of 2017 ("Details
# for NVIDIA DGX-1", training, 1 GPU). ResNet-101 is not among them: ResNet-50's by the ratio of the multiplications.
BATCH = 64
PICTURES_PER_S = {"ResNet-50": 219.0, "ResNet-101": 219.0 * 4.089 / 7.801, "Inception V3": 142.0, "VGG-16": 154.0}
# Scaling efficiency on 128 servers of 4 GPUs with links of 25 Gbit/s, as Horovod's authors published it.
PUBLISHED_GBIT = 25.0
PUBLISHED = {"ResNet-101": "0.90", "Inception V3": "0.90", "VGG-16": "0.68"}
_OWN_DESCRIPTORS = 22  # of a rank (design 0010)
# The bounds of `between_hosts.least_bytes` hold for these.
_BOUND = between_hosts.OPERATIONS


def _table(head: Sequence[str], rows: Iterator[Sequence[object]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|---" * len(head) + "|"
    for row in rows:
        yield "| " + " | ".join(map(str, row)) + " |"


def _time(seconds: float) -> str:
    for unit, factor in (("us", 1e6), ("ms", 1e3)):
        if seconds * factor < 1000:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds:.3g} s"


def start(simulator: Simulator, all_machines: Sequence[Machines], handshake_ms: float) -> Iterator[str]:
    """Start-up: what stands on the board, connections and descriptors of a rank.

    Args:
        simulator: for the tree and the connections of the two-level allreduce.
        all_machines: that are compared.
        handshake_ms: of a processor, for one end of a connection, proofs included.
    """

    def rows() -> Iterator[Sequence[object]]:
        for machines in all_machines:
            n, across = machines.size, machines.size - machines.locals
            tree = simulator.ask(machines, "agreement")
            first_use = simulator.ask(machines, "allreduce", 16 << 20)["connections"]
            shared = _OWN_DESCRIPTORS + 2 * (machines.locals - 1)
            yield (
                f"{machines.hosts} x {machines.locals}",
                n,
                f"{n * n * 70 / 1e6:.1f} MB",
                f"{3 * across} / {across + tree['root_across']}",
                shared + across + tree["root_across"],
                _time(3 * across * handshake_ms / 1e3),
                f"{tree['root_across']} + {first_use}",
                shared + tree["root_across"] + first_use,
                _time((tree["root_across"] + first_use) * handshake_ms / 1e3),
            )

    yield from _table(
        (
            "hosts x ranks",
            "cards on the board",
            "read by all",
            "all pairs: connections of rank 0, at first / then",
            "descriptors",
            "time",
            "tree and first use: control + data",
            "descriptors",
            "time",
        ),
        rows(),
    )


def negotiation(simulator: Simulator, all_machines: Sequence[Machines], tensors: int = 1000) -> Iterator[str]:
    """A step of cached tensors."""

    def rows() -> Iterator[Sequence[object]]:
        for machines in all_machines:
            cost = simulator.ask(machines, "negotiation", tensors)
            agreement = simulator.ask(machines, "agreement")
            yield (
                f"{machines.hosts} x {machines.locals}",
                machines.size,
                cost["depth"],
                cost["frames"],
                cost["root_frames"],
                f"{cost['root_bytes'] / 1e3:.1f} KB",
                f"{cost['down_bytes'] / 1e3:.1f} KB",
                _time(cost["root_s"]),
                _time(cost["busiest_s"]),
                _time(agreement["seconds"]),
            )

    yield from _table(
        (
            "hosts x ranks",
            "ranks",
            "depth",
            "frames of all",
            "frames to the root",
            "bytes to the root",
            "bytes of the order",
            "root's own time",
            "busiest rank's",
            "one agreement",
        ),
        rows(),
    )


def collectives(simulator: Simulator, machines: Machines, sizes: Sequence[int]) -> Iterator[str]:
    """Each operation and size: time, and which share of it the bytes need that must cross a link."""

    def rows() -> Iterator[Sequence[object]]:
        for operation in _BOUND:
            for size in sizes:
                if operation in ("allgather", "alltoall") and size * machines.size > 1 << 30:
                    continue  # more than ranks have room for
                found = simulator.ask(machines, operation, size)
                needed = between_hosts.least_bytes(operation, size, machines.hosts, machines.locals)
                bound_s = needed / machines.bytes_per_s
                yield (
                    f"{operation} {size_label(size)}",
                    _time(found["seconds"]),
                    _time(bound_s),
                    f"{bound_s / found['seconds']:.3f}",
                    found["messages"],
                    f"{found['link_bytes'] / needed:.3f}",
                    found["connections"],
                )

    yield from _table(
        ("", "time", "bound", "share of it", "messages", "bytes of the busiest link / bound", "connections"), rows()
    )


def scaling(
    simulator: Simulator, all_machines: Sequence[Machines], pictures_per_s: Mapping[str, float]
) -> Iterator[str]:
    """Training steps: how much of the computation's speed is left, gradients travelling while others are computed.

    Args:
        simulator: for the steps.
        all_machines: of one layout, with the links that are compared.
        pictures_per_s: of one GPU alone, by the network's name.
    """

    def rows() -> Iterator[Sequence[object]]:
        for name, tensors in networks.all_networks().items():
            compute_s = BATCH / pictures_per_s[name]
            ready = zip(networks.ready_parts(tensors), networks.gradient_sizes(tensors))
            text = "\n".join(f"{part * compute_s!r} {4 * elements}" for part, elements in ready)
            size = 4 * sum(tensor.elements for tensor in tensors)
            found: list[object] = []
            for machines in all_machines:
                step = simulator.ask(machines, "step", compute_s, text=text)
                found += [f"{step['seconds'] * 1e3:.0f} ms", step["batches"], f"{compute_s / step['seconds']:.3f}"]
            yield name, len(tensors), f"{size / 1e6:.1f} MB", f"{compute_s * 1e3:.0f} ms", *found, _published(name)

    links = [word for m in all_machines for word in (f"step at {m.gbit:g} Gbit/s", "batches", "efficiency")]
    head = ("", "tensors", "gradients", "computes", *links, f"published, {PUBLISHED_GBIT:g} Gbit/s")
    yield from _table(head, rows())


def _published(name: str) -> str:
    return PUBLISHED.get(name, "-")
