"""Prints the compilation units that clang-tidy is to read: `tidy_sources.py BUILD [--some]`, BUILD with its
compile_commands.json.

With --some, which CI asks for: those with a source that one of the last commits has changed, or its header, and a third
of the others, another one every day (HVD_TEST_SEED repeats one). All of them take ten minutes of two processors.
"""

from __future__ import annotations

import datetime
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COMMITS = 20
SHARE = 3
# Sources for other processors, and those that declare by hand what belongs to others.
_LEFT_OUT = re.compile(r"neon|/shim/")
_INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)


def sources_of(unit: Path) -> list[Path]:
    """The sources that a unit compiles: itself, or what it joins."""
    joined = _INCLUDE.findall(unit.read_text()) if unit.parent.name == "Unity" else []
    return [Path(name) for name in joined] or [unit]


def changed_stems() -> set[Path]:
    """What the last commits have changed, without the suffixes."""
    log = ["git", "log", f"-{COMMITS}", "--name-only", "--format="]
    done = subprocess.run(log, cwd=ROOT, capture_output=True, text=True, check=True)
    return {(ROOT / name).with_suffix("") for name in done.stdout.splitlines() if name.startswith("src/")}


def chosen(units: Sequence[Path], changed: set[Path], day: int) -> list[Path]:
    """Those to be read on a day.

    Args:
        units: all, in an order that stays.
        changed: sources and headers, without their suffixes.
        day: its number.
    """
    return [
        unit
        for number, unit in enumerate(units)
        if number % SHARE == day % SHARE or any(source.with_suffix("") in changed for source in sources_of(unit))
    ]


def main(words: Sequence[str]) -> int:
    commands = json.loads((Path(words[0]) / "compile_commands.json").read_text())
    units = sorted({Path(command["file"]) for command in commands if not _LEFT_OUT.search(command["file"])})
    if "--some" in words[1:]:
        day = int(os.environ.get("HVD_TEST_SEED") or datetime.date.today().toordinal())
        units = chosen(units, changed_stems(), day)
    print("\n".join(map(str, units)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
