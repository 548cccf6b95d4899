"""Rows of whole training loops: what distribution adds to a step of a ResNet-50-shaped model, ours against DDP, and
DistributedOptimizer's own part.

Used by `run_all`. Each library trains the same model twice in the same processes, wrapped and plain, in alternating
slices; a row's number is the difference. The pictures are small, so that the collective and not the convolutions
decides.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from harness.contest import Contest, Effort, Entry, Part
from harness.plan import Plan
from harness.row import Check, Row, middle

_SLICE_S = {"all": 1.0, "few": 0.4, "smoke": 0.1}  # at least: a step of the loop takes long
_OURS, _PEER = "ours (torch)", "torch gloo"


def rows(contest: Contest, plan: Plan) -> Iterator[Row]:
    """The loop against DDP, and the bookkeeping."""
    yield _loop(contest, plan)
    yield _bookkeeping(contest, plan)


def _difference(label: str, kind: str, wrapped: Entry, plain: Entry) -> Entry:
    """What a slice's median exceeds that of its neighbour by, round by round."""
    made = Entry(label, kind, void=wrapped.void or plain.void)
    for one, other in zip(wrapped.slices, plain.slices):
        made.slices.append([sorted(one)[len(one) // 2] - sorted(other)[len(other) // 2]])
    return made


def _loop(contest: Contest, plan: Plan) -> Row:
    jobs = [job for job in (_OURS, _PEER) if contest.knows(job)]
    parts = [
        Part(f"{job} {variant}", "info", job, {"task": "train", "variant": variant})
        for job in jobs
        for variant in ("plain", "wrapped")
    ]
    effort = Effort(plan.effort.rounds, max(plan.effort.slice_s, _SLICE_S[plan.rows]), plan.effort.pin)
    row = Row("training loop, ResNet-50-shaped: overhead per step", unit="ms")
    entries = {entry.label: entry for entry in contest.measure(parts, effort, row.name)}
    names = {_OURS: ("ours: DistributedOptimizer - plain", "ours"), _PEER: ("DDP (gloo, bucket views) - plain", "peer")}
    row.entries = [_difference(*names[job], entries[f"{job} wrapped"], entries[f"{job} plain"]) for job in jobs]
    row.entries += list(entries.values())
    row.note = "Default zero_grad, SGD. Each sample is the difference of two neighbouring slices' medians."
    ours, peer = row.ours(), row.peer_median()
    row.checks = [Check("<= 0.5 x DDP's overhead", ours / peer if peer > 0 else math.nan, 0.5, False)]
    return row


def _bookkeeping(contest: Contest, plan: Plan) -> Row:
    variants = ("plain", "raw", "wrapped")
    parts = [Part(variant, "info", _OURS, {"task": "bookkeeping", "variant": variant}) for variant in variants]
    row = Row("DistributedOptimizer beyond the collective, 161 tensors", unit="us")
    entries = {entry.label: entry for entry in contest.measure(parts, what=row.name)}
    own = _difference("wrapped - raw", "info", entries["wrapped"], entries["raw"])
    row.entries = [
        own,
        _difference("raw - plain (the collective)", "info", entries["raw"], entries["plain"]),
        *entries.values(),
    ]
    row.note = "Tiny tensors. raw: after backward an allreduce_async_ for each gradient, then synchronize for each."
    row.checks = [
        Check("<= 0.15 ms per step", middle([part[0] for part in own.slices] or [math.nan]) * 1e3, 0.15, False, "ms")
    ]
    return row
