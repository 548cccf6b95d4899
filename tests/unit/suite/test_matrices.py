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


def test_the_seed_is_printed(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HVD_TEST_SEED", "7")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("HVD_TEST_MATRIX", raising=False)
    pytester.makeconftest(PLUGIN.read_text())
    pytester.makepyfile(
        "import matrices, pytest\n"
        "@pytest.mark.matrix\n"
        "@matrices.cases('few', 60)\n"
        "def test_cases(case): assert case.endswith('9')\n"
        "def test_other(): pass\n"
    )
    printed = pytester.runpytest_inprocess("-q", "-p", "no:cacheprovider").stdout.str()
    assert "3 tests of matrices: HVD_TEST_SEED=7 repeats them" in printed.splitlines()
