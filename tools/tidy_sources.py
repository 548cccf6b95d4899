"""Prints the compilation units that clang-tidy is to read: `tidy_sources.py BUILD [--some]`, BUILD with its
compile_commands.json.

With --some, which CI asks for: CI's share of them (tests/shares.py). All of them take ten minutes of two processors.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

import matrices
import shares

ROOT = Path(__file__).resolve().parent.parent
# Sources for other processors, and those that declare by hand what belongs to others.
_LEFT_OUT = re.compile(r"neon|/shim/")
_INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)


def sources_of(unit: Path) -> list[Path]:
    """The sources that a unit compiles: itself, or what it joins."""
    joined = _INCLUDE.findall(unit.read_text()) if unit.parent.name == "Unity" else []
    return [Path(name) for name in joined] or [unit]


def chosen(units: Sequence[Path], changed: Collection[Path], seed: int) -> list[Path]:
    """CI's share: a unit has changed if one of its sources has, or the header of that name.

    Args:
        units: all, in an order that is the same in every run.
        changed: files.
        seed: of the run.
    """
    stems = {path.with_suffix("") for path in changed}
    return shares.chosen(units, lambda unit: any(source.with_suffix("") in stems for source in sources_of(unit)), seed)


def main(words: Sequence[str]) -> int:
    commands = json.loads((Path(words[0]) / "compile_commands.json").read_text())
    units = sorted({Path(command["file"]) for command in commands if not _LEFT_OUT.search(command["file"])})
    if "--some" in words[1:]:
        units = chosen(units, shares.changed_paths(ROOT), matrices.seed())
    print("\n".join(map(str, units)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
