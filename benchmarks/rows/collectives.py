"""Rows of single collectives: the in-place allreduce of 4 B to 256 MB, of tensors that live in shared memory, and
smaller tables of the others.

Used by `run_all`. Contenders alternate in one run; buffers change before every call; the copy of as many bytes by
every rank is the limit.
"""

from __future__ import annotations

import math
import os
import subprocess
from collections.abc import Iterator, Sequence

from harness.contest import Contest, Effort, Entry, Part
from harness.plan import Plan
from harness.row import MPI_NAMES, Check, Row, size_label
from harness.shares import TABLE_SIZES

from rows import upstream

SIZES = (*TABLE_SIZES, 64 << 20, 256 << 20)
_ALLREDUCE_SIZES = {"all": SIZES, "few": SIZES[:-1], "smoke": (4, 64 << 10, 1 << 20, 16 << 20)}
OPERATIONS = ("allreduce", "broadcast", "allgather", "alltoall", "reducescatter")
_IN_PLACE = ("allreduce", "broadcast")
_PEERS = ("torch gloo", "openmpi", "mpich", "other horovod")
CROWDED_NAMES = ("ours (torch)", *_PEERS)
_LARGE = 16 << 20
_NEW_MEMORY = (
    "The result goes to new memory in every call, of every contender: numpy.empty for the MPIs, torch.empty for gloo."
)
_CROWDED = (
    "More ranks than cores: a rank's time begins when it has a core. What it then waits for others counts, what it had "
    "waited for the core does not."
)


def _part(name: str, kind: str, job: str, operation: str, size_bytes: int, variant: str = "") -> Part:
    return Part(
        name, kind, job, {"task": "collective", "operation": operation, "elems": size_bytes // 4, "variant": variant}
    )


def allreduce_rows(contest: Contest, plan: Plan) -> Iterator[Row]:
    """One row per size, and from 16 MB on one for tensors that live in shared memory."""
    for size in _ALLREDUCE_SIZES[plan.rows]:
        parts = [_part("ours (torch)", "ours", "ours (torch)", "allreduce", size)]
        if size >= _LARGE:
            parts.append(_part("ours, resident", "ours", "ours (torch)", "allreduce", size, "resident"))
        else:
            parts.append(_part("ours (numpy)", "info", "ours (numpy)", "allreduce", size))
        parts += [_part(name, "peer", name, "allreduce", size) for name in _PEERS if contest.knows(name)]
        parts.append(_part("copy limit", "limit", "copy limit", "copy", size))
        entries = contest.measure(parts, what=f"allreduce {size_label(size)}")
        name = f"allreduce {size_label(size)}"
        plain = _curve_row(name, [e for e in entries if e.label != "ours, resident"], "allreduce", size)
        plain.checks = _checks(plain, size, plan)
        yield plain
        if size >= _LARGE:
            shared = [e for e in entries if e.label != "ours (torch)"]
            resident = _curve_row(f"{name}, resident", shared, "allreduce, resident", size)
            resident.note = "The tensor lives in memory that the ranks share, as DistributedOptimizer's gradients do."
            resident.checks = _resident_checks(resident)
            yield resident


def _curve_row(name: str, entries: list[Entry], operation: str, size_bytes: int) -> Row:
    return Row(name, entries, unit=_unit(size_bytes), operation=operation, size_bytes=size_bytes)


def _unit(size_bytes: int) -> str:
    return "ms" if size_bytes >= _LARGE else "us"


def _checks(row: Row, size: int, plan: Plan) -> list[Check]:
    ours, mpi = row.median("ours (torch)"), row.peer_median(MPI_NAMES)
    if size < 64 << 10:
        if size > 4:
            return []
        guess = upstream.allreduce_s(size, row.median("openmpi"))
        row.note = (
            f"Upstream: {upstream.SAYING}: {guess * 1e6:.0f} us. The table's own figure, a floor set by a 1 ms timer, "
            f"is 1071 us: {1071e-6 / ours:.0f} times ours."
        )
        return [
            Check("Python call to result <= 5 us", ours * 1e6, 5, False, "us"),
            Check("upstream / ours >= 200", guess / ours, 200, True),
        ]
    if size < _LARGE:
        return [Check("<= best MPI + 10 us", (ours - mpi) * 1e6, 10, False, "us")]
    factor = 1.3 if size < 64 << 20 else 3.0
    shared = plan.cores is None or plan.cores.share_l3
    least = 0.9 if shared else 0.65
    state = "an L3 shared" if shared else "no L3 shared"
    return [
        Check(f">= {factor} x the best MPI", mpi / ours, factor, True),
        Check(f">= {least} of the two-process copy rate ({state})", row.median("copy limit") / ours, least, True),
    ]


def _resident_checks(row: Row) -> list[Check]:
    ours = row.median("ours, resident")
    return [
        Check(">= 1.0 of the copy rate", row.median("copy limit") / ours, 1.0, True),
        Check(">= 4 x the best MPI", row.peer_median(MPI_NAMES) / ours, 4.0, True),
    ]


def other_rows(contest: Contest, plan: Plan) -> Iterator[Row]:
    """Broadcast, allgather, alltoall and reducescatter; without targets."""
    return _plain_rows(contest, plan, OPERATIONS[1:])


def crowded_rows(contest: Contest, plan: Plan) -> Iterator[Row]:
    """All five with more ranks than two; without targets."""
    return _plain_rows(contest, plan, OPERATIONS)


def _plain_rows(contest: Contest, plan: Plan, operations: Sequence[str]) -> Iterator[Row]:
    """A row per operation and size, each rank giving that many bytes."""
    for operation in operations:
        for size in _plain_sizes(operation, contest.ranks, plan):
            name = f"{operation} {size_label(size)}" + (f", {contest.ranks} ranks" if contest.ranks > 2 else "")
            parts = [_part("ours (torch)", "ours", "ours (torch)", operation, size)]
            parts += [_part(peer, "peer", peer, operation, size) for peer in _PEERS if contest.knows(peer)]
            row = _curve_row(name, contest.measure(parts, what=name), operation, size)
            row.ranks = contest.ranks
            crowded = contest.ranks > len(os.sched_getaffinity(0))
            notes = {_NEW_MEMORY: operation not in _IN_PLACE, _CROWDED: crowded}
            row.note = " ".join(note for note, holds in notes.items() if holds)
            yield row


def _plain_sizes(operation: str, ranks: int, plan: Plan) -> Sequence[int]:
    """What is scattered needs an element for every rank."""
    least = 4 * ranks if operation in ("alltoall", "reducescatter") else 4
    return [64 << 10] if plan.quick else [size for size in TABLE_SIZES if size >= least]


def in_core_rows(contest: Contest, plan: Plan) -> Iterator[Row]:
    """The core without Python (benchmarks/native/engine_bench), its runs alternating with slices of the MPIs."""
    program = plan.native("engine_bench")
    row = Row(
        "allreduce 4 B inside the core", note="Ours from C++ (each sample the median of one run); MPI through mpi4py."
    )
    core = Entry(
        "ours (core)",
        "ours",
        void=None if program else f"missing: {plan.native_missing or 'engine_bench was not built'}",
    )
    peers: dict[str, Entry] = {}
    short = Effort(1, plan.effort.slice_s, plan.effort.pin)
    for _ in range(plan.effort.rounds):
        if core.void is None:
            core.void = _run_core(str(program), core)
        parts = [_part(name, "peer", name, "allreduce", 4) for name in MPI_NAMES if contest.knows(name)]
        for entry in contest.measure(parts, short, "allreduce 4 B inside the core"):
            kept = peers.setdefault(entry.label, entry)
            if kept is not entry:
                kept.slices += entry.slices
    row.entries = [core, *peers.values()]
    ratio = row.peer_median() / core.median if not math.isnan(core.median) else math.nan
    row.checks = [Check("no slower than the best MPI (best MPI / ours >= 1)", ratio, 1.0, True)]
    yield row


def _run_core(program: str, entry: Entry) -> str | None:
    """Adds one run's median to the entry; why it could not."""
    try:
        output = subprocess.run([program, "2", "4"], capture_output=True, text=True, timeout=60, check=True).stdout
        entry.slices.append([float(output.split("median")[1].split()[0]) / 1e6])
    except (OSError, subprocess.SubprocessError, IndexError, ValueError) as error:
        return f"failed: {error}"
    return None
