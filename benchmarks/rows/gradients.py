"""Rows of gradient sets: the 161 gradients of ResNet-50 (102.2 MB) in one step, and the 115 small ones of them alone;
where all rows are measured, also those of ResNet-101, Inception V3 and VGG-16.

Used by `run_all`. Ours are submitted as they come, each under its name, and then waited for; peers do what suits them
best: a call for each, 25 MB buckets with copies, buckets whose views the gradients are. Values change before every
step and every result is checked.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from harness.contest import Contest, Part
from harness.plan import Plan
from harness.row import MPI_NAMES, Check, Row
from ranks import networks, resnet50

from rows import upstream

_PEER_MODES = {
    "torch gloo": ("copies", "views", "separate"),
    "openmpi": ("copies", "views", "separate"),
    "mpich": ("copies", "views", "separate"),
    "other horovod": ("async",),
}
_MAIN = "ResNet-50"
# Of the modes of a peer; copies are never its best.
_SKIPPED_MODES = {"all": 0, "few": 1, "smoke": 2}


def rows(contest: Contest, plan: Plan) -> Iterator[Row]:
    """All sets that the plan asks for."""
    yield _whole_set(contest, plan)
    yield _small_ones(contest, plan)
    if plan.rows == "all":
        for name, tensors in networks.all_networks().items():
            if name != _MAIN:
                yield _other_set(contest, plan, name, networks.gradient_sizes(tensors))


def _other_set(contest: Contest, plan: Plan, network: str, sizes: list[int]) -> Row:
    parts = [_part("ours, as they come", "ours", "ours (torch)", "async", sizes), *_peer_parts(contest, plan, sizes)]
    name = f"{network} gradients, one step"
    row = Row(name, contest.measure(parts, what=name), unit="ms")
    row.note = f"{len(sizes)} tensors, {4 * sum(sizes) / 1e6:.1f} MB."
    row.checks = [Check(">= 1.0 x the fastest peer", row.peer_median() / row.median(parts[0].label), 1.0, True)]
    return row


def _part(name: str, kind: str, job: str, mode: str, sizes: list[int]) -> Part:
    return Part(name, kind, job, {"task": "gradients", "mode": mode, "sizes": sizes})


def _whole_set(contest: Contest, plan: Plan) -> Row:
    sizes = resnet50.gradient_sizes()
    parts = [_part("ours, as they come", "ours", "ours (torch)", "async", sizes)]
    parts.append(_part("ours, resident", "info", "ours (torch)", "resident", sizes))
    parts += _peer_parts(contest, plan, sizes)
    name = f"{_MAIN} gradients, one step"
    row = Row(name, contest.measure(parts, what=name), unit="ms")
    ours = row.median("ours, as they come")
    guess = upstream.gradient_set_s(row.median("openmpi, separate"))
    row.note = f"161 tensors, 102.2 MB. Upstream: {upstream.SAYING}: {guess * 1e3:.0f} ms."
    row.checks = [
        Check(">= 1.4 x the fastest peer", row.peer_median() / ours, 1.4, True),
        Check(">= 5 x upstream's best", guess / ours, 5.0, True),
        Check("resident: >= 2.5 x the best MPI", row.peer_median(MPI_NAMES) / row.median("ours, resident"), 2.5, True),
    ]
    return row


def _peer_parts(contest: Contest, plan: Plan, sizes: list[int]) -> list[Part]:
    return [
        _part(f"{name}, {mode}", "peer", name, mode, sizes)
        for name, modes in _PEER_MODES.items()
        if contest.knows(name)
        for mode in modes[_SKIPPED_MODES[plan.rows] :] or modes
    ]


def _small_ones(contest: Contest, plan: Plan) -> Row:
    sizes = resnet50.gradient_sizes(small_only=True)
    parts = [_part("ours, as they come", "ours", "ours (torch)", "async", sizes)]
    parts.append(_part("ours, one group", "info", "ours (torch)", "grouped", sizes))
    parts += _peer_parts(contest, plan, sizes)
    known = {part.label for part in parts}
    packed = [_part(f"{mpi}, copies", "peer", mpi, "copies", sizes) for mpi in MPI_NAMES if contest.knows(mpi)]
    parts += [part for part in packed if part.label not in known]
    name = "the 115 gradients of up to 64 KB"
    row = Row(name, contest.measure(parts, what=name), unit="us")
    row.note = (
        "0.66 MB. With views a peer makes a single call, for gradients that live in its bucket already; ours come one "
        "by one, as a backward pass makes them. In a group ours, like a peer with copies, needs one call."
    )
    copies = min((row.median(part.label) for part in packed), default=math.nan)
    row.checks = [
        Check("<= 0.3 ms", row.median("ours, as they come") * 1e3, 0.3, False, "ms"),
        Check("in a group: >= 1.0 x one MPI call and packing", copies / row.median("ours, one group"), 1.0, True),
    ]
    return row
