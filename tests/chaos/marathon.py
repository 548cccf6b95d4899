"""The long run of the chaos matrix: `python -m chaos.marathon [--faults 1000] [--seed 1] [--sizes 3,4,6,8]`.

Jobs that lose ranks and regain them, one job after the other, until so many faults have happened in all. Prints what
happened as a table. Ends with 1 when a promise was broken; that job can be run again by its number: `--only`.
PYTHONPATH must hold python and tests.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from jobs import Hangs

from .case_run import Case, run
from .promises import broken, recoveries
from .table import made_up, without_launcher

_PER_JOB = {"numpy": 50}  # faults
_FEW_PER_JOB = 20  # where a process takes seconds to start
_LAUNCHERS = ("KILL", "TERM", "INT")  # in turn, at the end of every third job
_BROKEN = Path("build", "chaos-broken.txt")


class Told(NamedTuple):
    """What a job has shown.

    Attributes:
        faults: what has happened, by phase and kind.
        recoveries_s: the pauses for deaths.
        broken: a promise was.
    """

    faults: Counter[tuple[str, str]]
    recoveries_s: list[float]
    broken: bool


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--faults", type=int, default=1000, help="how many in all")
    parser.add_argument("--seed", default="1", help="what happens follows from it")
    parser.add_argument("--sizes", default="3,4,6,8", help="numbers of ranks, in turn")
    parser.add_argument("--bindings", default="numpy", help="frameworks, in turn")
    parser.add_argument("--only", type=int, help="number of the one job to run")
    args = parser.parse_args()
    cases = jobs_of(args.seed, args.faults, [int(size) for size in args.sizes.split(",")], args.bindings.split(","))
    told = [_run(number, case) for number, case in enumerate(cases) if args.only in (None, number)]
    counted: Counter[tuple[str, str]] = Counter()
    for each in told:
        counted.update(each.faults)
    print(_table(counted))
    if seconds := [pause for each in told for pause in each.recoveries_s]:
        print(
            f"death to training again, {len(seconds)} times: median {statistics.median(seconds):.2f} s, "
            f"90 of 100 within {sorted(seconds)[len(seconds) * 9 // 10]:.2f} s, worst {max(seconds):.2f} s"
        )
    failed = sum(each.broken for each in told)
    print(f"{len(told)} jobs, {counted.total()} faults, {failed} jobs broke a promise")
    return int(failed > 0)


def jobs_of(seed: str, faults: int, sizes: list[int], bindings: list[str]) -> list[Case]:
    """The jobs in which so many faults happen."""
    found: list[Case] = []
    for binding, size in itertools.cycle(itertools.product(bindings, sizes)):
        if faults <= 0:
            return found
        number = min(faults, _PER_JOB.get(binding, _FEW_PER_JOB))
        case = made_up(f"{seed}.{len(found)}", size, number, binding)
        turn, stays = divmod(len(found), 3)
        found.append(case if stays < 2 else without_launcher(case, _LAUNCHERS[turn % len(_LAUNCHERS)]))
        faults -= number
    return found


def _run(number: int, case: Case) -> Told:
    began = time.monotonic()
    try:
        story = run(case)
        complaints, text = broken(story), str(story)
        faults = Counter((event["phase"], event["what"]) for event in story.of("fault"))
        faults.update(("launcher", act.what) for act in case.acts)
        told = Told(
            faults,
            [seconds for _, seconds in recoveries(story)],
            bool(complaints),
        )
        epochs = len(story.places())
    except Hangs as error:
        complaints, text, told, epochs = ["it hangs"], str(error), Told(Counter(), [], True), 0
    took = time.monotonic() - began
    print(f"job {number} ({case}): {told.faults.total()} faults, {epochs} epochs, {took:.0f} s", flush=True)
    for complaint in complaints[:10]:
        print(f"    {complaint[:600]}", flush=True)
    if complaints:
        _BROKEN.parent.mkdir(exist_ok=True)
        with _BROKEN.open("a") as file:
            file.write(f"job {number} ({case})\n" + "\n".join(complaints) + f"\n{text}\n\n")
        print(f"    more in {_BROKEN}", flush=True)
    return told


def _table(counted: Counter[tuple[str, str]]) -> str:
    """Markdown: phases down, faults across."""
    kinds = sorted({what for _, what in counted})
    lines = [f"| phase | {' | '.join(kinds)} | all |", "|---|" + "---|" * (len(kinds) + 1)]
    for phase in sorted({phase for phase, _ in counted}):
        row = [counted[phase, what] for what in kinds]
        lines.append(f"| {phase} | {' | '.join(map(str, row))} | {sum(row)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
