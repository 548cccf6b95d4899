"""`make bench`: every row of the target table that needs one host and no GPU, against the peers of this machine, in
alternating slices.

    run_all.py [--quick] [--rows NAMES] [--runs 3] [--pin] [--peer-python PATH] [--native-dir PATH | --no-native]
        [--output DIR]

Each run starts its jobs anew. Prints a Markdown report and writes it with a JSON of the same into build/bench
(report.md, report.json). Exit code 1 if a result was wrong. `--quick` (below two minutes) shows that everything
works; its numbers say nothing.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Callable

from contenders import peers
from harness import machine_state, report
from harness.contest import Contest, Effort
from harness.plan import Plan, build_native
from harness.row import Row
from rows import collectives, crowded, gradients, idle, import_time, negotiation, training_loop

# Rows measured with the two-rank jobs of a run.
_WITH_JOBS: dict[str, Callable[[Contest, Plan], list[Row]]] = {
    "idle": idle.rows,
    "allreduce": collectives.allreduce_rows,
    "core": collectives.in_core_rows,
    "gradients": gradients.rows,
    "training": training_loop.rows,
    "collectives": collectives.other_rows,
}
_ALONE: dict[str, Callable[[Plan], list[Row]]] = {
    "crowded": crowded.rows,
    "import": import_time.rows,
    "negotiation": negotiation.rows,
}


def main(words: Sequence[str]) -> int:
    """Runs what the command line asks for."""
    asked = _parser().parse_args(words)
    names = asked.rows or [*_WITH_JOBS, *_ALONE]
    native, native_missing = _native(asked)
    effort = Effort(2, 0.05, asked.pin) if asked.quick else Effort(asked.rounds, asked.slice, asked.pin)
    found = peers.find(asked.peer_python, create=True)
    contenders = [peers.ours("torch"), peers.ours("numpy"), *found, peers.copying()]
    state = machine_state.description()
    runs: list[list[Row]] = []
    versions: dict[str, str] = {}
    for number in range(1 if asked.quick and asked.runs is None else asked.runs or 3):
        others = machine_state.quiet_share()
        plan = Plan(asked.quick, effort, machine_state.probe_cores(), native, native_missing)
        before, begin = machine_state.Moment.now(), time.monotonic()
        runs.append(_run(names, contenders, plan, versions))
        moment = before.until(machine_state.Moment.now())
        state.append(
            f"run {number + 1} ({time.monotonic() - begin:.0f} s): others used {100 * others:.0f} % of the cores "
            f"before it; {moment}; {plan.cores or 'no compiler: cores not probed'}"
        )
    setting = _setting(asked, effort, versions)
    print(report.write(asked.output, runs, state, setting))
    return 1 if any("WRONG" in (entry.void or "") for run in runs for row in run for entry in row.entries) else 0


def _run(
    names: Sequence[str], contenders: Sequence[peers.Contender], plan: Plan, versions: dict[str, str]
) -> list[Row]:
    made: list[Row] = []
    if any(name in _WITH_JOBS for name in names):
        with Contest(contenders, 2, plan.effort) as contest:
            versions.update(contest.versions)
            for name, rows in _WITH_JOBS.items():
                if name in names:
                    made += _told(name, lambda rows=rows: rows(contest, plan))  # type: ignore[misc]
    for name, alone in _ALONE.items():
        if name in names:
            made += _told(name, lambda alone=alone: alone(plan))  # type: ignore[misc]
    return made


def _told(name: str, measure: Callable[[], list[Row]]) -> list[Row]:
    begin = time.monotonic()
    rows = measure()
    print(f"{name}: {len(rows)} rows in {time.monotonic() - begin:.1f} s", file=sys.stderr, flush=True)
    return rows


def _native(asked: argparse.Namespace) -> tuple[Path | None, str]:
    if asked.native_dir:
        return asked.native_dir, f"not in {asked.native_dir}"
    if asked.no_native:
        return None, "--no-native"
    return build_native()


def _setting(asked: argparse.Namespace, effort: Effort, versions: dict[str, str]) -> list[str]:
    pinned = "pinned to a core each" if effort.pin else "not pinned (no contender is)"
    lines = [
        "2 ranks on one host, float32; contenders alternate in slices, "
        f"{effort.rounds} recorded ones of about {effort.slice_s} s per contender and row",
        "ranks start every iteration together at a gate of their own; the slowest rank counts",
        "buffers change before every call; every result is checked, each place in the last iteration of a slice",
        f"threads: OMP_NUM_THREADS=1 for all; ranks {pinned}",
        *[f"{name}: {text}" for name, text in versions.items()],
    ]
    if asked.quick:
        lines.insert(0, "QUICK: a smoke test; these numbers say nothing")
    return lines


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--quick", action="store_true", help="a smoke test below two minutes")
    made.add_argument("--rows", nargs="+", choices=[*_WITH_JOBS, *_ALONE], help="only these groups")
    made.add_argument("--runs", type=int, help="how often everything is measured (3; 1 with --quick)")
    made.add_argument("--rounds", type=int, default=5, help="recorded slices per contender and row")
    made.add_argument("--slice", type=float, default=0.4, help="seconds of a slice")
    made.add_argument("--pin", action="store_true", help="pin each rank's main thread to a core, for all contenders")
    made.add_argument("--peer-python", help="interpreter with another Horovod installed")
    native = made.add_mutually_exclusive_group()
    native.add_argument("--native-dir", type=Path, help="folder of built C++ benchmarks")
    native.add_argument("--no-native", action="store_true", help="leave the C++ benchmarks out")
    made.add_argument("--output", type=Path, default=peers.ROOT / "build" / "bench", help="folder of the report")
    return made


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
