"""Puts the defects of tests/defects.toml into the product, one at a time, and tells which test catches each.

`try_defects.py [--tree CHECKOUT] [NAME ...]`. Works on a copy of the checkout, this one or another, built once; only
what a defect changes is compiled again. Prints a line per defect: name, seconds with compiling, the first test that
failed; that test must pass again without the defect. Exit code 1 if one is not caught, or cannot be tried.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomllib

ROOT = Path(__file__).resolve().parent.parent
LIMIT_S = 300.0
GRACE_S = 10.0
NATIVE = "native:"
_SILENT = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "errors": "replace"}


def copied(tree: Path, place: Path) -> Path:
    """A copy of what git knows of a checkout."""
    copy = place / "copy"
    names = subprocess.run(["git", "ls-files"], cwd=tree, capture_output=True, text=True, check=True).stdout.split("\n")
    for name in filter(None, names):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(tree / name, copy / name)
    return copy


def build(copy: Path) -> None:
    """Core, tests and fakes of the copy; raises where they do not compile."""
    folder = copy / "build" / "release"
    if not folder.exists():
        options = ["-DCMAKE_BUILD_TYPE=Release", "-DHVD_TESTS=ON", f"-DPython3_EXECUTABLE={sys.executable}"]
        subprocess.run(["cmake", "-S", copy, "-B", folder, "-G", "Ninja", *options], check=True, **_SILENT)
    done = subprocess.run(["cmake", "--build", folder], check=False, **_SILENT)
    if done.returncode != 0:
        raise RuntimeError(done.stdout[-3000:])
    for library in ("libhorovod.so", "libhorovod_tensorflow.so", "_lane.abi3.so"):
        shutil.copy2(folder / library, copy / "python/horovod/_native" / library)


def commands(copy: Path, tests: Sequence[str]) -> list[list[str]]:
    """Those that run these tests."""
    filters = [test.removeprefix(NATIVE) for test in tests if test.startswith(NATIVE)]
    paths = [test for test in tests if not test.startswith(NATIVE)]
    native = [str(copy / "build/release/hvd_tests"), *filters]
    python = [sys.executable, "-m", "pytest", "-x", "-q", "-rfE", "--color=no", *paths]
    return [command for command, chosen in ((native, filters), (python, paths)) if chosen]


def first_failure(copy: Path, command: Sequence[str]) -> str:
    """The first test of the command that fails, "" if none does. Raises RuntimeError when it runs no test."""
    environ = {**os.environ, "PYTHONPATH": f"{copy / 'python'}:{copy / 'tests'}"}
    with subprocess.Popen(command, cwd=copy, env=environ, start_new_session=True, **_SILENT) as process:
        try:
            said, _ = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            end_session(process)
            return f"no end within {LIMIT_S:.0f} s: {command[-1]}"
    if process.returncode == 0:
        return ""
    if "pytest" in command and process.returncode in (4, 5):  # a wrong path, no tests
        raise RuntimeError(said[-3000:])
    found = re.search(r"^(?:FAILED|ERROR|\[FAILED\]) (\S+)", said, re.MULTILINE)
    begun = re.findall(r"\[ run  \] (\S+)", said)
    return found[1] if found else f"exit code {process.returncode} in {begun[-1] if begun else command[-1]}"


def end_session(process: subprocess.Popen[str]) -> None:
    """Ends a command and what it has started: launchers end their ranks when they get SIGTERM."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=GRACE_S)  # until nobody holds its output any more
    if process.stdout is not None:
        process.stdout.close()


def tried(copy: Path, defect: Mapping[str, Any]) -> str:
    """Puts the defect in, runs its tests, takes it out again; what caught it, "" if nothing did.

    Raises:
        RuntimeError: it cannot be put in or compiled, or what failed fails without it too.
    """
    path = copy / defect["file"]
    text = path.read_text()
    if text.count(defect["old"]) != 1:
        raise RuntimeError(f"{defect['file']} has its text {text.count(defect['old'])} times")
    rebuild = build if path.suffix in (".cc", ".h") else lambda _: None
    path.write_text(text.replace(defect["old"], defect["new"]))
    caught, command = "", []
    try:
        rebuild(copy)
        for command in commands(copy, defect["tests"]):
            if caught := first_failure(copy, command):
                break
    finally:
        path.write_text(text)
    rebuild(copy)
    if caught and first_failure(copy, command):
        raise RuntimeError(f"{caught} fails without it, too")
    return caught


def main() -> int:
    """Exit code for the shell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tree", type=Path, default=ROOT, help="another checkout of this project")
    parser.add_argument("names", nargs="*", help="of defects; without any: all")
    asked = parser.parse_args()
    defects = tomllib.loads((ROOT / "tests" / "defects.toml").read_text())["defect"]
    if unknown := set(asked.names) - {defect["name"] for defect in defects}:
        parser.error(f"tests/defects.toml has no {', '.join(sorted(unknown))}.")
    missed = 0
    with tempfile.TemporaryDirectory() as place:
        copy = copied(asked.tree, Path(place))
        build(copy)
        for defect in defects:
            if asked.names and defect["name"] not in asked.names:
                continue
            begun = time.monotonic()
            try:
                caught = tried(copy, defect)
                said = caught or "NOT CAUGHT"
            except RuntimeError as error:
                caught, said = "", f"CANNOT BE TRIED: {error}"
            missed += not caught
            print(f"{defect['name']}: {time.monotonic() - begun:.0f} s, {said}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
