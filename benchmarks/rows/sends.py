"""Rows of what two ranks send one another: there and back, 4 B to 64 MB.

Used by `run_all`. Contenders alternate in one run; buffers change before every call. Half of a time is the latency, a
size by it the bandwidth.
"""

from __future__ import annotations

from collections.abc import Iterator

from harness.contest import Contest, Part
from harness.plan import Plan
from harness.row import Row, size_label

_SIZES = {"all": (4, 1 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20), "few": (4, 64 << 10, 16 << 20), "smoke": (4,)}
_PEERS = ("torch gloo", "openmpi", "mpich")


def rows(contest: Contest, plan: Plan) -> Iterator[Row]:
    """One row per size; without targets."""
    for size in _SIZES[plan.rows]:
        name = f"send and recv back {size_label(size)}"
        order = {"task": "collective", "operation": "send", "elems": size // 4}
        names = [("ours (torch)", "ours"), ("ours (numpy)", "ours"), *((peer, "peer") for peer in _PEERS)]
        parts = [Part(each, kind, each, order) for each, kind in names if kind == "ours" or contest.knows(each)]
        note = "Both ways: half of a time is one message. Above 64 KB a send of ours waits for its recv."
        yield Row(name, contest.measure(parts, what=name), unit="ms" if size >= 16 << 20 else "us", note=note)
