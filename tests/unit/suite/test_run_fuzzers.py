"""`tools/run_fuzzers.py`: its targets in Python still parse their seeds, on days on which CI runs no fuzzers too."""

from __future__ import annotations

import contextlib
import importlib.util
from pathlib import Path

import pytest

_PATH = Path(__file__).resolve().parents[3] / "tools" / "run_fuzzers.py"
_SPEC = importlib.util.spec_from_file_location("run_fuzzers", _PATH)
assert _SPEC is not None and _SPEC.loader is not None
run_fuzzers = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(run_fuzzers)
TARGETS = run_fuzzers.python_targets()
OF_TENSORFLOW = ("compute config", "data service")  # they import it, which takes seconds


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in OF_TENSORFLOW else []) for name in TARGETS]
)
def test_the_seeds_are_parsed(name):
    parse, seeds, allowed = TARGETS[name]
    for seed in seeds:
        with contextlib.suppress(*allowed):
            parse(seed)
