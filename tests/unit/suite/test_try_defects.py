"""The trial of defects: each can be put in, and what a test that is too slow has started is ended."""

from __future__ import annotations

import importlib.util
import sys
import time
from pathlib import Path

import pytest
import tomllib

_PATH = Path(__file__).resolve().parents[3] / "tools" / "try_defects.py"
_SPEC = importlib.util.spec_from_file_location("try_defects", _PATH)
assert _SPEC is not None and _SPEC.loader is not None
try_defects = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(try_defects)

_PARENT = """
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {child!r}])
child.wait()
"""
_CHILD = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_{action})
open("started.tmp", "w").write(str(os.getpid()))
os.rename("started.tmp", "started")
time.sleep(50)
"""


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("action", ["DFL", "IGN"])
def test_children_of_a_command_that_is_too_slow_are_ended(
    action: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(try_defects, "LIMIT_S", 5.0)
    monkeypatch.setattr(try_defects, "GRACE_S", 1.0, raising=False)
    command = [sys.executable, "-c", _PARENT.format(child=_CHILD.format(action=action))]
    assert try_defects.first_failure(tmp_path, command).startswith("no end within 5 s")
    child = int((tmp_path / "started").read_text())
    until_s = time.monotonic() + 10  # it has been killed, and may not have ended yet
    while is_running(child) and time.monotonic() < until_s:
        time.sleep(0.02)
    assert not is_running(child)


def test_each_defect_has_its_place() -> None:
    defects = tomllib.loads((try_defects.ROOT / "tests" / "defects.toml").read_text())["defect"]
    found = {each["name"]: (try_defects.ROOT / each["file"]).read_text().count(each["old"]) for each in defects}
    assert {name: times for name, times in found.items() if times != 1} == {}


def test_the_tests_of_each_defect_are_there() -> None:
    defects = tomllib.loads((try_defects.ROOT / "tests" / "defects.toml").read_text())["defect"]
    named = {test.partition("::")[0] for each in defects for test in each["tests"] if not test.startswith("native:")}
    assert named and [path for path in sorted(named) if not (try_defects.ROOT / path).exists()] == []
