"""What users' programs and commands can name is still there: public names, parameters, settings, variables, flags."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from jobs import ROOT
from jobs.needs import needs

TOOL = ROOT / "tools" / "public_surface.py"
LISTED = Path(__file__).with_name("public_surface.txt")
_SPEC = importlib.util.spec_from_file_location("public_surface", TOOL)
assert _SPEC is not None and _SPEC.loader is not None
public_surface = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(public_surface)


@pytest.mark.slow
@needs("torch", "tensorflow", "jax")
def test_nothing_is_gone() -> None:
    """In a process of its own, which imports every framework."""
    ended = subprocess.run([sys.executable, TOOL, "--compare", LISTED], capture_output=True, text=True, timeout=100)
    assert (ended.returncode, ended.stdout) == (0, "public surface: everything is there\n"), ended.stdout + ended.stderr


def test_what_is_gone_is_named() -> None:
    now = ["a.rank(self, loudly=False)", "again b(rank, size)", "setting verbose(flag=--verbose)", "b.NEW", "b.join()"]
    before = ["a.rank(self, softly=())", "b.rank(self)", "a.sing(tensor)", "again b(size, join, hum)"]
    before += ["setting verbose(flag=--verb)"]
    assert public_surface.gone(before, now) == [
        "a.rank: parameter softly=()",
        "a.sing(tensor)",
        "b.hum",
        "setting verbose: parameter flag=--verb",
    ]
    assert public_surface.gone(now, now) == []
