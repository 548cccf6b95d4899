"""The kill matrix: every phase x {rank 0, a middle one, the last} x repetitions, and what was left behind.

    python benchmarks/faults.py --repeat 20 --size 4

Prints one line per cell: the worst and the median time from the fault until the last of the other ranks had raised (or,
in shutdown, finished), the worst time until the whole job was gone, the exit codes, the first line of a report, and how
many promises were broken: a rank that did not raise, more than a second, a wrong code or culprit, anything left of
processes, /dev/shm, temporary and runtime folders, sockets. Then the launcher itself is killed. The exit code is 1 when
a promise was broken. On a machine where nothing else runs, --whole-machine counts every new name as a leftover.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from faults.fault_job import Fault, Story, run, started  # noqa: E402
from faults.promises import PHASES, broken  # noqa: E402

LAUNCHER_SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


class Cell:
    """What the repetitions of one fault showed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.raised_s: list[float] = []
        self.gone_s: list[float] = []
        self.codes: set[int] = set()
        self.report = ""
        self.complaints: list[str] = []

    def add(self, story: Story, complaints: list[str], raised_s: float, gone_s: float) -> None:
        """Takes one run."""
        self.raised_s.append(raised_s)
        self.gone_s.append(gone_s)
        self.codes.add(story.code)
        self.report = self.report or story.report
        self.complaints += complaints

    def line(self) -> str:
        """The row of the table."""
        codes = ",".join(map(str, sorted(self.codes)))
        if not self.raised_s:
            return f"{self.name:<24} no run came to an end"
        worst, middle = max(self.raised_s) * 1e3, statistics.median(self.raised_s) * 1e3
        gone = max(self.gone_s) * 1e3
        return (
            f"{self.name:<24}{len(self.raised_s):>5}{worst:>10.0f}{middle:>10.0f}{gone:>10.0f}{codes:>7}"
            f"{len(self.complaints):>8}  {self.report[:150]}"
        )

    def record(self) -> dict[str, object]:
        """For --json."""
        return {
            "name": self.name,
            "runs": len(self.raised_s),
            "worst_raised_s": max(self.raised_s, default=None),
            "median_raised_s": statistics.median(self.raised_s) if self.raised_s else None,
            "worst_gone_s": max(self.gone_s, default=None),
            "codes": sorted(self.codes),
            "report": self.report,
            "complaints": self.complaints,
        }


def kill_a_rank(fault: Fault, options: argparse.Namespace) -> Cell:
    """The repetitions of one cell."""
    cell = Cell(f"{fault.phase} rank {fault.rank}")
    for _ in range(options.repeat):
        try:
            story = run(fault, options.size, whole_machine=options.whole_machine)
        except AssertionError as error:  # a job that hangs
            cell.complaints.append(str(error))
            continue
        complaints = broken(story, fault)
        raised_s = story.worst_s if story.of("raised") + story.of("finished") else float("inf")
        cell.add(story, complaints, raised_s, story.ended_s - story.fault_s)
    return cell


def kill_the_launcher(number: signal.Signals, options: argparse.Namespace) -> Cell:
    """The repetitions of one signal; "raised" is here the time until every process was gone."""
    cell = Cell(f"launcher {number.name}")
    for _ in range(options.repeat):
        with started(Fault("orphans", -1, "NONE"), options.size, {}, options.whole_machine) as job:
            job.await_events("running", options.size)
            job.until(lambda job=job: list(job.processes()), 2 + options.size * 5)
            begin_s = time.monotonic()
            job.signal(job.process.pid, number)
            while job.processes() and time.monotonic() < begin_s + 10:
                time.sleep(0.002)
            gone_s = time.monotonic() - begin_s
            story = job.story()
        code = -number if number == signal.SIGKILL else 128 + number
        complaints = [f"left: {name}" for name in story.leftovers]
        complaints += [f"code {story.code}"] if story.code != code else []
        cell.add(story, complaints, gone_s, gone_s)
    return cell


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=20, help="runs per cell")
    parser.add_argument("--size", type=int, default=4, help="ranks of the job")
    parser.add_argument("--phases", default=",".join(PHASES), help="some of: " + ", ".join(PHASES))
    parser.add_argument("--whole-machine", action="store_true", help="nothing else runs here: count every new name")
    parser.add_argument("--no-launcher", action="store_true", help="do not kill the launcher")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    widths = (("phase and rank", -24), ("runs", 5), ("worst ms", 10), ("median ms", 10), ("gone ms", 10), ("code", 7))
    print("".join(f"{name:{'<' if width < 0 else '>'}{abs(width)}}" for name, width in widths) + "  broken  report")
    cells = []
    for phase in options.phases.split(","):
        for rank in sorted({0, options.size // 2, options.size - 1}):
            cells.append(kill_a_rank(Fault(phase, rank), options))
            print(cells[-1].line(), flush=True)
    for number in () if options.no_launcher else LAUNCHER_SIGNALS:
        cells.append(kill_the_launcher(number, options))
        print(cells[-1].line(), flush=True)
    complaints = [f"{cell.name}: {text}" for cell in cells for text in cell.complaints]
    print("\n".join(complaints[:50]) or "No promise was broken.")
    if options.json:
        options.json.write_text(json.dumps([cell.record() for cell in cells], indent=1) + "\n")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
