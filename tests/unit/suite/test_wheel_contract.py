"""What fails once on the wheel is run once more, and what fails twice ends `make wheel-test` (tools/test_wheel.py)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))

test_wheel = pytest.importorskip("test_wheel", exc_type=ImportError, reason="A module of the tools is missing.")

# The first test passes, the second from its run number PASSES on.
TESTS = """
from pathlib import Path

def test_right():
    pass

def test_wrong():
    runs = Path("runs")
    runs.write_text((runs.read_text() if runs.exists() else "") + "x")
    assert len(runs.read_text()) >= PASSES
"""


def check(folder: Path, monkeypatch: pytest.MonkeyPatch, passes: int) -> None:
    """Checks a contract of two tests."""
    (folder / "wheel/bin").mkdir(parents=True)
    python = folder / "wheel/bin/python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    (folder / "tests/contract").mkdir(parents=True)
    (folder / "tests/contract/test_it.py").write_text(TESTS.replace("PASSES", str(passes)))
    monkeypatch.setattr(test_wheel, "ROOT", folder)
    monkeypatch.setattr(test_wheel, "CONTRACT", {"numpy": ("test_it.py::test_right", "test_it.py::test_wrong")})
    monkeypatch.setenv("HVD_TEST_INSTALLED", "")  # undoes what it sets
    test_wheel.check_contract(["numpy", "jax"], folder, python, os.environ["PATH"])


@pytest.mark.parametrize(("passes", "runs"), [(1, 1), (2, 2)])
def test_a_failure_is_run_once_more(
    passes: int, runs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    check(tmp_path, monkeypatch, passes)
    assert ("FAILED ONCE" in capsys.readouterr().out) == (runs == 2)
    assert len((tmp_path / "runs").read_text()) == runs
    assert (tmp_path / "build/times/wheel.xml").exists()
    assert (tmp_path / "build/times/wheel.again.xml").exists() == (runs == 2)


def test_two_failures_end_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit, match="test_wrong"):
        check(tmp_path, monkeypatch, passes=3)
    assert len((tmp_path / "runs").read_text()) == 2


def test_what_does_not_exist_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_wheel, "attempt", lambda *_, **__: test_wheel.subprocess.CompletedProcess((), 4, "", "no"))
    with pytest.raises(SystemExit, match="cannot be run"):
        check(tmp_path, monkeypatch, passes=1)
