"""Rows of more ranks than cores: 4 and 8 ranks, total time against 2 ranks, and against an oversubscribed Open MPI.

Used by `run_all`. Iterations run back to back: with more ranks than cores they cannot begin together, so a slice's
whole time counts, filling the buffers included. "No worse than linearly" means: n ranks take at most n/2 times as
long as 2.
"""

from __future__ import annotations

from collections.abc import Iterator

from contenders import peers
from harness.contest import Contest, Effort, Entry
from harness.plan import Plan
from harness.row import Check, Row, size_label

_COUNTS = {4: 1000, 64 << 10: 300, 1 << 20: 60, 16 << 20: 6}


def rows(plan: Plan) -> Iterator[Row]:
    """A row per size and number of ranks; its jobs run beside nobody else's."""
    sizes = {"all": tuple(_COUNTS), "few": (4, 64 << 10, 1 << 20), "smoke": (4, 64 << 10)}[plan.rows]
    effort = Effort(plan.effort.rounds, 0.0)
    contests: dict[int, Contest] = {}
    try:
        for n in (2, 4, 8) if plan.rows == "all" else (2, 4):
            contests[n] = Contest([peers.ours(), peers.mpi("openmpi", create=False)], n, effort, plan.progress)
        for size in sizes:
            if not plan.progress.over():
                plan.progress.show(f"{' and '.join(map(str, contests))} ranks, allreduce {size_label(size)}")
                yield from _of_size(contests, size, plan)
    finally:
        for contest in contests.values():
            contest.__exit__()


def _of_size(contests: dict[int, Contest], size: int, plan: Plan) -> list[Row]:
    count = _COUNTS[size] // (10 if plan.quick else 1)
    entries = {
        (name, n): Entry(
            f"{'ours' if name.startswith('ours') else name}, {n} ranks", "ours" if name.startswith("ours") else "peer"
        )
        for n in contests
        for name in ("ours (torch)", "openmpi")
    }
    # One round more, unrecorded.
    for turn in range(plan.effort.rounds + 1):
        if turn > 1 and plan.progress.over():
            break
        for (name, n), entry in entries.items():
            contests[n].tight(name, entry, size, count, record=turn > 0)
    two = entries["ours (torch)", 2]
    made = []
    for n in contests:
        if n == 2:
            continue
        ours, other = entries["ours (torch)", n], entries["openmpi", n]
        base = Entry(two.label, "info", two.slices, two.void)
        row = Row(f"{n} ranks on the cores of this machine, allreduce {size_label(size)}", [ours, other, base])
        row.checks = [Check(f"time <= {n // 2} x that of 2 ranks", ours.median / two.median, n / 2, False)]
        row.note = "Back to back, per iteration; filling the buffer is part of it."
        made.append(row)
    return made
