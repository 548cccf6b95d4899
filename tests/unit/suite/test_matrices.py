"""The matrices: what is drawn, what is refused, and that the seed is printed (tests/matrices.py, tests/conftest.py)."""

from __future__ import annotations

from pathlib import Path

import matrices
import pytest

pytest_plugins = ["pytester"]

PLUGIN = Path(__file__).parents[2] / "conftest.py"


def test_the_seed_of_a_day_is_the_same_all_day(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HVD_TEST_SEED", raising=False)
    monkeypatch.delenv("HVD_TEST_MATRIX", raising=False)
    assert matrices.seed() == matrices.seed() > 700_000
    monkeypatch.setenv("HVD_TEST_SEED", "7")
    assert (matrices.seed(), matrices.whole(), matrices.repeated()) == (7, False, "HVD_TEST_SEED=7")
    monkeypatch.setenv("HVD_TEST_MATRIX", "full")
    assert (matrices.whole(), matrices.repeated()) == (True, "HVD_TEST_SEED=7 HVD_TEST_MATRIX=full")


def test_what_is_misspelt_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HVD_TEST_MATRIX", "whole")
    with pytest.raises(ValueError, match="'whole'"):
        matrices.whole()
    monkeypatch.setenv("HVD_TEST_SEED", "x")
    with pytest.raises(ValueError, match="'x'"):
        matrices.seed()


def test_seeds_are_printed_also_of_tests_that_passed(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HVD_TEST_SEED", "7")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("HVD_TEST_MATRIX", raising=False)
    pytester.makeconftest(PLUGIN.read_text())
    pytester.makepyfile(
        "import matrices\n"
        "def test_well(record_property): matrices.noted(record_property)\n"
        "def test_badly(record_property): matrices.noted(record_property); assert False\n"
    )
    printed = pytester.runpytest_inprocess("-q", "-p", "no:cacheprovider").stdout.str()
    for name in ("test_well", "test_badly"):
        assert any(line.startswith("HVD_TEST_SEED=7 ") and line.endswith(name) for line in printed.splitlines())
