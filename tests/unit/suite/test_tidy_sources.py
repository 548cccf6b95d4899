"""Which compilation units clang-tidy reads in CI."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from jobs import ROOT

_SPEC = importlib.util.spec_from_file_location("tidy_sources", ROOT / "tools" / "tidy_sources.py")
assert _SPEC is not None and _SPEC.loader is not None
tidy_sources = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(tidy_sources)


@pytest.fixture
def units(tmp_path: Path) -> list[Path]:
    """Three that join two sources each, and one of one source."""
    (tmp_path / "Unity").mkdir()
    found = []
    for number in range(3):
        found.append(tmp_path / "Unity" / f"unity_{number}_cxx.cxx")
        found[-1].write_text("".join(f'/* NOLINT */\n#include "/src/{number}{name}.cc"\n' for name in "ab"))
    found.append(tmp_path / "alone.cc")
    found[-1].write_text('#include "alone.h"\n')
    return found


def test_each_is_read_in_one_run_of_four(units: list[Path]) -> None:
    runs = [tidy_sources.chosen(units, set(), seed) for seed in range(700, 704)]
    assert sorted(sum(runs, [])) == sorted(units) and len(runs[0]) <= 2


def test_what_has_changed_is_read_in_every_run(units: list[Path]) -> None:
    for seed in range(4):
        chosen = tidy_sources.chosen(units, {Path("/src/1b.h"), units[3]}, seed)
        assert units[1] in chosen and units[3] in chosen
