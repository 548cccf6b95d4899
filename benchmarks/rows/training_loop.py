"""Rows of whole training loops: what distribution adds to a step of a ResNet-50-shaped model and of two perceptrons,
ours against DDP, and DistributedOptimizer's own part.

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
_SHORT_SLICE_S = {"all": 0.1, "few": 0.05, "smoke": 0.05}  # of the perceptrons: dozens of steps
_OURS, _PEER = "ours (torch)", "torch gloo"
_WIDTHS = (64, 256)  # of the perceptrons


def rows(contest: Contest, plan: Plan) -> Iterator[Row]:
    """The loops against DDP, and the bookkeeping."""
    yield _loop(contest, plan, "resnet50", "training loop, ResNet-50-shaped: overhead per step")
    for width in _WIDTHS:
        row = _loop(contest, plan, str(width), f"training step, perceptron of 10 x {width}, batch 32")
        ours, ddp = row.median(f"{_OURS} wrapped"), row.median(f"{_PEER} wrapped")
        row.unit = "us"
        row.checks.append(Check(">= 1.7 x the speed of DDP's step", ddp / ours, 1.7, True))
        yield row
    yield _bookkeeping(contest, plan)


def _difference(label: str, kind: str, wrapped: Entry, plain: Entry) -> Entry:
    """What a slice's median exceeds that of its neighbour by, round by round."""
    made = Entry(label, kind, void=wrapped.void or plain.void)
    for one, other in zip(wrapped.slices, plain.slices):
        made.slices.append([sorted(one)[len(one) // 2] - sorted(other)[len(other) // 2]])
    return made


def _loop(contest: Contest, plan: Plan, model: str, name: str) -> Row:
    is_long = model == "resnet50"
    variants = {_OURS: ["plain", "wrapped"], _PEER: ["plain", "wrapped"]}
    if not is_long or plan.rows != "few":  # a short run has no time for both ways of the large model
        variants[_OURS].append("resident")
    parts = [
        Part(f"{job} {variant}", "info", job, {"task": "train", "variant": variant, "model": model})
        for job in variants
        if contest.knows(job)
        for variant in variants[job]
    ]
    slice_s = max(plan.effort.slice_s, _SLICE_S[plan.rows]) if is_long else _SHORT_SLICE_S[plan.rows]
    effort = Effort(plan.effort.rounds, slice_s, plan.effort.pin)
    row = Row(name, unit="ms")
    entries = {entry.label: entry for entry in contest.measure(parts, effort, row.name)}
    names = {
        f"{_OURS} wrapped": ("ours: DistributedOptimizer - plain", "ours"),
        f"{_OURS} resident": ("ours with resident gradients - plain", "info"),
        f"{_PEER} wrapped": ("DDP (gloo, bucket views) - plain", "peer"),
    }
    for label, (title, kind) in names.items():
        if label in entries:
            plain = entries[f"{label.rpartition(' ')[0]} plain"]
            row.entries.append(_difference(title, kind, entries[label], plain))
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
