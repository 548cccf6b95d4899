"""What CI takes of something that is too long for every run: what changed of late, and a quarter of the rest.

The seed of the matrices (tests/matrices.py) says which quarter. Run as a script, it prints the targets of the Makefile
that test C++ once more, under the sanitizers and by fuzzing.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import matrices

Item = TypeVar("Item")

ROOT = Path(__file__).resolve().parent.parent
COMMITS = 10
SHARE = 4
_CPP = {".cc", ".h", ".txt", ".cmake"}


def changed_paths(root: Path) -> set[Path]:
    """The files that the last commits of a repository have changed."""
    log = ["git", "log", f"-{COMMITS}", "--name-only", "--format="]
    done = subprocess.run(log, cwd=root, capture_output=True, text=True, check=True)
    return {root / name for name in done.stdout.splitlines() if name}


def chosen(items: Iterable[Item], changed: Callable[[Item], bool], seed: int) -> list[Item]:
    """The items of one run.

    Args:
        items: all, in an order that is the same in every run.
        changed: whether an item has changed of late.
        seed: of the run; four numbers in a row choose everything.
    """
    return [item for number, item in enumerate(items) if number % SHARE == seed % SHARE or changed(item)]


def some_files(paths: Iterable[Path]) -> list[Path]:
    """CI's share of the files of tests: one has changed if it has itself, or a script that it names.

    Args:
        paths: the files, in an order that is the same in every run; they may be repeated.
    """
    changed = changed_paths(ROOT)
    package = ROOT / "python"  # its modules may have the name of a script
    scripts = {path.name for path in changed if path.suffix == ".py" and not path.is_relative_to(package)}
    scripts.discard("__init__.py")

    def has_changed(path: Path) -> bool:
        text = path.read_text()
        return path in changed or any(f'"{name}"' in text or f"/{name}" in text for name in scripts)

    return chosen(dict.fromkeys(paths), has_changed, matrices.seed())


def native_targets(changed: Iterable[Path], seed: int) -> list[str]:
    """Targets of the Makefile for one run: all where C++ has changed of late, else those of one sanitizer.

    Args:
        changed: files.
        seed: of the run; two numbers in a row choose everything.
    """
    address, threads = ["asan-test", "fuzz-some"], ["tsan-test"]
    if any(path.suffix in _CPP for path in changed):
        return address + threads
    return threads if seed % 2 else address


if __name__ == "__main__":
    print(*native_targets(changed_paths(ROOT), matrices.seed()))
