"""Puts the defects of tests/defects.toml into the product, one at a time, and tells which test catches each.

`try_defects.py [--tree CHECKOUT] [NAME ...]`. Works on a copy of the checkout, this one or another, built once; only
what a defect changes is compiled again. Prints a line per defect: name, seconds with compiling, the first test that
failed; each selection of tests has passed before without a defect. Exit code 1 if one is not caught, or cannot be
tried.
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
    place_libraries(copy)


def place_libraries(copy: Path) -> None:
    """Where Python looks for them, from where they are built."""
    for library in ("libhorovod.so", "libhorovod_tensorflow.so", "_lane.abi3.so"):
        shutil.copy2(copy / "build/release" / library, copy / "python/horovod/_native" / library)


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


class Trial:
    """A copy that is built, into which defects are put one at a time.

    Args:
        copy: see `copied`.
    """

    def __init__(self, copy: Path) -> None:
        self._copy = copy
        self._built = copy / "build"
        self._kept = copy.parent / "kept"
        self._without: dict[tuple[str, ...], str] = {}  # what fails without a defect, by command
        build(copy)
        shutil.copytree(self._built, self._kept, symlinks=True)

    def tried(self, defect: Mapping[str, Any]) -> str:
        """Puts the defect in, runs its tests, takes it out again; what caught it, "" if nothing did.

        Raises:
            RuntimeError: it cannot be put in or compiled, or its tests fail without it too.
        """
        path = self._copy / defect["file"]
        text, times = path.read_text(), path.stat()
        if text.count(defect["old"]) != 1:
            raise RuntimeError(f"{defect['file']} has its text {text.count(defect['old'])} times")
        chosen = commands(self._copy, defect["tests"])
        for command in chosen:
            if failed := self._fails_without(command):
                raise RuntimeError(f"{failed} fails without it, too")
        path.write_text(text.replace(defect["old"], defect["new"]))
        compiled = path.suffix in (".cc", ".h")
        try:
            if compiled:
                build(self._copy)
            return next(filter(None, (first_failure(self._copy, command) for command in chosen)), "")
        finally:
            path.write_text(text)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
            if compiled:
                self._restore_build()

    def _fails_without(self, command: Sequence[str]) -> str:
        key = tuple(command)
        if key not in self._without:
            self._without[key] = first_failure(self._copy, command)
        return self._without[key]

    def _restore_build(self) -> None:
        """As it was: nothing is compiled again that the next defect does not change."""
        shutil.rmtree(self._built)
        shutil.copytree(self._kept, self._built, symlinks=True)
        place_libraries(self._copy)


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
        trial = Trial(copy)
        for defect in defects:
            if asked.names and defect["name"] not in asked.names:
                continue
            begun = time.monotonic()
            try:
                caught = trial.tried(defect)
                said = caught or "NOT CAUGHT"
            except RuntimeError as error:
                caught, said = "", f"CANNOT BE TRIED: {error}"
            missed += not caught
            print(f"{defect['name']}: {time.monotonic() - begun:.0f} s, {said}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
