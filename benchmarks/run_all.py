"""`make bench` and `make bench-full`: every row of the target table that needs one host and no GPU, against the peers
of this machine, in alternating slices.

    run_all.py [--minutes M | --quick] [--rows NAMES] [--runs N] [--rounds N] [--slice S] [--pin] [--peer-python PATH]
        [--native-dir PATH | --no-native] [--output DIR]

Each run starts its jobs anew. Prints a Markdown report and writes it with a JSON of the same into build/bench
(report.md, report.json). `--minutes` measures what fits into them: fewer runs, shorter slices, fewer rows; what is
built and installed on first use comes on top. `--quick` (below two minutes) shows that everything works; its numbers
say nothing. Exit code 1 if a result was wrong. Ctrl-C ends it with what has been measured, and code 130.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

from contenders import peers
from harness import budget, machine_state, report
from harness.budget import Extent
from harness.contest import NO_TIME, Contest, Effort
from harness.plan import Plan, build_native
from harness.progress import Progress, clock_words
from harness.row import Row
from rows import collectives, gradients, idle, import_time, negotiation, sends, training_loop

# Rows measured with the two-rank jobs of a run.
_WITH_JOBS: dict[str, Callable[[Contest, Plan], Iterable[Row]]] = {
    "allreduce": collectives.allreduce_rows,
    "collectives": collectives.other_rows,
    "gradients": gradients.rows,
    "training": training_loop.rows,
    "core": collectives.in_core_rows,
    "idle": idle.rows,
    "sends": sends.rows,
}
_ALONE: dict[str, Callable[[Plan], Iterable[Row]]] = {
    "import": import_time.rows,
    "negotiation": negotiation.rows,
}
_WORLDS = "worlds"  # the collectives of more ranks
_WORLD_SIZES = {"all": (4, 8), "few": (4,), "smoke": (4,)}
_LONG = "sends"  # what a short run has no time for
_SHARE = 0.92  # of the minutes; the rest is for what is under way when they are over, and for closing the jobs
_INTERRUPTED = 130  # 128 + SIGINT, as a shell says it


@dataclass
class Measured:
    """What there is so far; whole at every moment, so that it can be written when somebody presses Ctrl-C.

    Attributes:
        runs: rows of each run.
        machine: lines on its state.
        versions: of the contenders.
        skipped: groups, and rows of groups, that had no time.
    """

    runs: list[list[Row]] = field(default_factory=list)
    machine: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)


def main(words: Sequence[str]) -> int:
    """Runs what the command line asks for."""
    asked = _parser().parse_args(words)
    whole = not asked.quick and asked.minutes is None
    names = asked.rows or [name for name in budget.GROUPS if whole or name != _LONG]
    extent = _extent(asked, names)
    progress = Progress(sys.stderr)
    progress.show("building the programs of the core, looking for peers")
    native, native_missing = _native(asked)
    found = peers.find(asked.peer_python, create=True)
    contenders = [peers.ours("torch"), peers.ours("numpy"), *found, peers.copying()]
    plan = Plan(extent.rows, Effort(extent.rounds, extent.slice_s, asked.pin), None, progress, native, native_missing)
    measured = Measured(machine=machine_state.description())
    limit_s = math.inf if asked.minutes is None else _SHARE * 60 * asked.minutes
    interrupted = False
    try:
        _Runs(names, contenders, extent, limit_s, measured).measure(plan)
    except KeyboardInterrupt:
        interrupted = True
    progress.clear()
    about = report.About(_setting(asked, extent, measured, interrupted), measured.machine, *machine_state.origin())
    print(report.write(asked.output, measured.runs, about))
    if interrupted:
        return _INTERRUPTED
    rows = [row for run in measured.runs for row in run]
    return 1 if any("WRONG" in (entry.void or "") for row in rows for entry in row.entries) else 0


class _Runs:
    """All runs, one after the other, each group in its share of the time.

    Args:
        names: of the groups.
        contenders: of the rows with jobs.
        extent: what is measured.
        limit_s: for everything; inf = none.
        measured: filled.
    """

    def __init__(
        self,
        names: Sequence[str],
        contenders: Sequence[peers.Contender],
        extent: Extent,
        limit_s: float,
        measured: Measured,
    ) -> None:
        self._names, self._contenders, self._extent, self._measured = names, contenders, extent, measured
        self._begin_s, self._limit_s = time.monotonic(), limit_s
        self._done: list[str] = []
        starts = [budget.START] if any(name in _WITH_JOBS for name in names) else []
        ordered = [name for name in (*_WITH_JOBS, *_ALONE, _WORLDS) if name in names]
        self._later = [*starts, *ordered] * extent.runs

    def measure(self, plan: Plan) -> None:
        """Measures everything, or what there is time for."""
        for number in range(self._extent.runs):
            others = machine_state.quiet_share()
            probed = dataclasses.replace(plan, cores=machine_state.probe_cores())
            self._measured.runs.append([])
            before, begin = machine_state.Moment.now(), time.monotonic()
            try:
                self._run(probed)
            finally:
                moment = before.until(machine_state.Moment.now())
                self._measured.machine.append(
                    f"run {number + 1} ({time.monotonic() - begin:.0f} s): others used {100 * others:.0f} % of the "
                    f"cores before it; {moment}; {probed.cores or 'no compiler: cores not probed'}"
                )

    def _run(self, plan: Plan) -> None:
        if any(name in _WITH_JOBS for name in self._names):
            self._begin(budget.START, plan)
            with Contest(self._contenders, 2, plan.effort, plan.progress) as contest:
                self._measured.versions.update(contest.versions)
                self._done.append(budget.START)
                for name, rows in _WITH_JOBS.items():
                    self._take(name, plan, lambda rows=rows: rows(contest, plan))  # type: ignore[misc]
        for name, alone in _ALONE.items():
            self._take(name, plan, lambda alone=alone: alone(plan))  # type: ignore[misc]
        self._take(_WORLDS, plan, lambda: self._worlds(plan))

    def _worlds(self, plan: Plan) -> Iterable[Row]:
        for ranks in _WORLD_SIZES[plan.rows]:
            measured = collectives.CROWDED_NAMES
            contenders = [contender for contender in self._contenders if contender.name in measured]
            with Contest(contenders, ranks, plan.effort, plan.progress) as contest:
                yield from collectives.crowded_rows(contest, plan)

    def _begin(self, name: str, plan: Plan) -> None:
        """Takes the group off the list of those to come, and gives it its time."""
        self._later.remove(name)
        spent_s = time.monotonic() - self._begin_s
        left_s = budget.remaining_s(spent_s, self._done, [name, *self._later], self._extent)
        limit_s = budget.share_s(self._limit_s - spent_s, name, self._later, self._extent)
        plan.progress.begin(min(left_s, self._limit_s - spent_s), limit_s)

    def _take(self, name: str, plan: Plan, measure: Callable[[], Iterable[Row]]) -> None:
        if name not in self._names:
            return
        self._begin(name, plan)
        if plan.progress.over():
            self._measured.skipped.append(name)
        else:
            for row in measure():
                if row.entries and all(entry.void == NO_TIME for entry in row.entries):
                    self._measured.skipped.append(row.name)
                else:
                    self._measured.runs[-1].append(row)
        self._done.append(name)


def _extent(asked: argparse.Namespace, names: Sequence[str]) -> Extent:
    if asked.quick:
        chosen = budget.SMOKE
    else:
        chosen = (
            budget.EVERYTHING
            if asked.minutes is None
            else budget.choose(_SHARE * 60 * asked.minutes, [budget.START, *names])
        )
    given = {"runs": asked.runs, "rounds": asked.rounds, "slice_s": asked.slice}
    return dataclasses.replace(chosen, **{name: value for name, value in given.items() if value is not None})


def _native(asked: argparse.Namespace) -> tuple[Path | None, str]:
    if asked.native_dir:
        return asked.native_dir, f"not in {asked.native_dir}"
    if asked.no_native:
        return None, "--no-native"
    return build_native()


def _setting(asked: argparse.Namespace, extent: Extent, measured: Measured, interrupted: bool) -> list[str]:
    pinned = "pinned to a core each" if asked.pin else "not pinned (no contender is)"
    budgeted = "" if asked.minutes is None else f"; what fits into {clock_words(60 * asked.minutes)} minutes"
    lines = [
        f"2 ranks on one host unless a row says more, float32; contenders alternate in slices; {extent}{budgeted}",
        "ranks start every iteration together at a gate of their own; the slowest rank counts",
        "buffers change before every call; every result is checked, each place in the last iteration of a slice",
        f"threads: OMP_NUM_THREADS=1 for all; ranks {pinned}",
        *[f"{name}: {text}" for name, text in measured.versions.items()],
    ]
    if measured.skipped:
        lines.insert(1, f"left out, because the time was over: {', '.join(dict.fromkeys(measured.skipped))}")
    if interrupted:
        lines.insert(0, "INTERRUPTED: what had been measured until then")
    if asked.quick:
        lines.insert(0, "QUICK: a smoke test; these numbers say nothing")
    return lines


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    length = made.add_mutually_exclusive_group()
    length.add_argument("--minutes", type=_positive(float), help="what fits into so many; without: everything")
    length.add_argument("--quick", action="store_true", help="a smoke test below two minutes")
    made.add_argument("--rows", nargs="+", choices=budget.GROUPS, help="only these groups")
    made.add_argument("--runs", type=_positive(int), help="how often everything is measured")
    made.add_argument("--rounds", type=_positive(int), help="recorded slices per contender and row")
    made.add_argument("--slice", type=_positive(float), help="seconds of a slice")
    made.add_argument("--pin", action="store_true", help="pin each rank's main thread to a core, for all contenders")
    made.add_argument("--peer-python", help="interpreter with another Horovod installed")
    native = made.add_mutually_exclusive_group()
    native.add_argument("--native-dir", type=Path, help="folder of built C++ benchmarks")
    native.add_argument("--no-native", action="store_true", help="leave the C++ benchmarks out")
    made.add_argument("--output", type=Path, default=peers.ROOT / "build" / "bench", help="folder of the report")
    return made


def _positive(kind: Callable[[str], float]) -> Callable[[str], float]:
    def parsed(text: str) -> float:
        value = kind(text)
        if not 0 < value < math.inf:
            raise ValueError
        return value

    parsed.__name__ = "number above 0"  # argparse says "invalid number above 0 value: '-1'"
    return parsed


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:  # before anything was measured
        sys.exit(_INTERRUPTED)
