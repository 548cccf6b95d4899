"""Tells where the time of the tests has gone, and what failed once: `report_times.py TIMES BUDGETS`.

TIMES is the folder of one run: `parts` has a line "name seconds" for each part of the run, and the .xml files are the
records of its tests (JUnit); those of `NAME.again.xml` failed and were run once more. BUDGETS says how many seconds may
be spent where. Exit code 1 where more were.
"""

from __future__ import annotations

import statistics
import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import tomllib

LONGEST = 20


@dataclass(frozen=True)
class Test:
    """One test of a record.

    Attributes:
        record: name of the record it is from.
        module: dotted, from the root of the project.
        name: in the module.
        seconds: with its fixtures.
        failed: in this run.
        flaky: failed, and then passed in the same run (C++ tests).
        why: first line of its message.
    """

    record: str
    module: str
    name: str
    seconds: float
    failed: bool
    flaky: bool
    why: str

    @property
    def folder(self) -> str:
        """The folder that has the budget: `tests/unit`, and below `tests/integration` one level more."""
        parts = self.module.split(".")
        depth = 3 if parts[:2] == ["tests", "integration"] and len(parts) > 3 else 2
        return "/".join(parts[:depth])


def tests_in(path: Path) -> list[Test]:
    """The tests of a record."""
    found = []
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        bad = [case.find(kind) for kind in ("failure", "error", "flakyFailure")]
        said = [(element.get("message") or "").strip() for element in bad if element is not None]
        why = said[0].splitlines()[0] if said and said[0] else ""
        seconds = float(case.get("time") or 0)
        flaky = case.find("flakyFailure") is not None
        module, name = case.get("classname") or "", case.get("name") or ""
        if module:  # else a module that skips all of its tests
            found.append(Test(path.stem, module, name, seconds, bool(said), flaky, why))
    return found


def seconds_by_folder(tests: Iterable[Test]) -> dict[str, tuple[float, int]]:
    """Seconds and number of the tests of each folder, of C++ tests of each record."""
    sums: dict[str, list[float]] = defaultdict(list)
    for test in tests:
        sums[f"{test.folder} ({test.record})"].append(test.seconds)
    return {folder: (sum(seconds), len(seconds)) for folder, seconds in sums.items()}


def slowness(spent: Mapping[str, float], budgets: Mapping[str, float]) -> float:
    """How many times its budget a folder may take on this machine: 1 where it is no slower than those expected.

    A folder takes a third of its budget on a quiet machine. If most folders take more, the machine is slow and no
    single folder has grown: each may then take three times the middle folder's share.
    """
    shares = [seconds / budgets[name] for name, seconds in spent.items() if name in budgets]
    return max(1.0, 3 * statistics.median_low(shares)) if shares else 1.0


def overruns(spent: Mapping[str, float], parts: Mapping[str, float], budgets: Mapping[str, float]) -> list[str]:
    """What took longer than it may, or, in a whole run of CI, has no budget."""
    found = []
    slow = slowness(spent, budgets)
    for name, seconds in {**spent, **parts}.items():
        allowed = budgets.get(name, float("inf")) * (slow if name in spent else 1.0)
        if seconds > allowed:
            found.append(f"TOO LONG: {name} took {seconds:.0f} s; its budget is {allowed:.0f} s.")
        if name not in budgets and "ci" in parts:
            found.append(f"NO BUDGET: {name} took {seconds:.0f} s. Give it a budget.")
    return found


def main(times: Path, budgets: Path) -> int:
    """Prints the tables; the exit code."""
    tests, again = [], []
    for path in sorted(times.glob("*.xml")):
        (again if path.stem.endswith(".again") else tests).extend(tests_in(path))
    lines = (times / "parts").read_text().splitlines() if (times / "parts").exists() else []
    parts: dict[str, float] = {}
    for name, seconds in (line.split() for line in lines):
        parts[name] = max(float(seconds), parts.get(name, 0.0))
    spent = seconds_by_folder(tests)

    print("Minutes of each part (parts run beside one another):")
    for name, seconds in parts.items():
        print(f"  {seconds / 60:6.1f}  {name}")
    print("Seconds of tests, their number, and the folder (of the run):")
    for folder, (seconds, count) in sorted(spent.items(), key=lambda item: -item[1][0]):
        print(f"  {seconds:7.1f} {count:6d}  {folder}")
    print(f"The {LONGEST} longest:")
    for test in sorted(tests, key=lambda test: -test.seconds)[:LONGEST]:
        print(f"  {test.seconds:6.1f}  {test.module}::{test.name} ({test.record})")

    folders = {folder: seconds for folder, (seconds, _) in spent.items()}
    found = overruns(folders, parts, tomllib.loads(budgets.read_text())["seconds"])
    for line in found:
        print(line)
    passed = {(test.record.removesuffix(".again"), test.module, test.name) for test in again if not test.failed}
    for test in tests:
        if test.failed:
            once = test.flaky or (test.record, test.module, test.name) in passed
            print(f"FAILED{' ONCE' * once}: {test.module}::{test.name} ({test.record}): {test.why[:200]}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
