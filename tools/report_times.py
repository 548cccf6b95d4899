"""Tells where the time of the tests has gone, and what failed once: `report_times.py TIMES`.

TIMES is the folder of one run: `parts` has a line "name seconds" for each part of the run, and the .xml files are the
records of its tests (JUnit); those of `NAME.again.xml` failed and were run once more. Exit code 1 where a whole run of
CI took too long. Parts and folders have no limit of their own: how long one takes depends on what was drawn
(tests/shares.py) and on what ran beside it.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

LONGEST = 20
CI_LIMIT = 5200  # seconds; CI has 5400, and is to take 2700


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
        """The folder that it is counted in: `tests/unit`, and below `tests/integration` one level more."""
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


def main(times: Path) -> int:
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

    too_long = parts.get("ci", 0) > CI_LIMIT
    if too_long:
        print(f"TOO LONG: CI took {parts['ci']:.0f} s; it may take {CI_LIMIT} s.")
    passed = {(test.record.removesuffix(".again"), test.module, test.name) for test in again if not test.failed}
    for test in tests:
        if test.failed:
            once = test.flaky or (test.record, test.module, test.name) in passed
            print(f"FAILED{' ONCE' * once}: {test.module}::{test.name} ({test.record}): {test.why[:200]}")
    return 1 if too_long else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
