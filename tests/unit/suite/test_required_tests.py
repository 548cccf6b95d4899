"""HVD_TEST_REQUIRE=all turns skips into failures (tests/conftest.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

PLUGIN = Path(__file__).parents[2] / "conftest.py"
WAYS = {
    "in a test": "def test_it(): pytest.skip({reason!r})",
    "by a fixture": "@pytest.fixture\ndef tool(): pytest.skip({reason!r})\ndef test_it(tool): pass",
    "by a mark": "@pytest.mark.skipif(True, reason={reason!r})\ndef test_it(): pass",
    "in a module": "pytest.skip({reason!r}, allow_module_level=True)",
    "by an import": "pytest.importorskip('no_such_module', reason={reason!r})\ndef test_it(): pass",
}


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """An empty suite with the plugin, and nothing required."""
    monkeypatch.delenv("HVD_TEST_REQUIRE", raising=False)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # starts faster
    pytester.makeconftest(PLUGIN.read_text())
    return pytester


def outcome(suite: pytest.Pytester, text: str, reason: str) -> tuple[int, int, str]:
    """How many were skipped, how many failed; and the output."""
    suite.makepyfile("import pytest\n" + text.format(reason=reason))
    result = suite.runpytest_inprocess("-p", "no:cacheprovider")
    counts = result.parseoutcomes()
    return counts.get("skipped", 0), counts.get("failed", 0) + counts.get("errors", 0), result.stdout.str()


@pytest.mark.parametrize("text", WAYS.values(), ids=WAYS)
def test_a_skip_is_a_skip_when_nothing_is_required(suite: pytest.Pytester, text: str) -> None:
    assert outcome(suite, text, "The tool is not installed.")[:2] == (1, 0)


@pytest.mark.parametrize("text", WAYS.values(), ids=WAYS)
def test_a_skip_is_a_failure_when_all_is_required(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("HVD_TEST_REQUIRE", "all")
    skipped, failed, output = outcome(suite, text, "The tool is not installed.")
    assert (skipped, failed) == (0, 1)
    assert "HVD_TEST_REQUIRE=all, and this was skipped: The tool is not installed." in output


@pytest.mark.parametrize("text", WAYS.values(), ids=WAYS)
def test_what_nobody_can_install_stays_a_skip(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("HVD_TEST_REQUIRE", "all")
    assert outcome(suite, text, "Not here: the framework lacks this operation.")[:2] == (1, 0)


def test_an_expected_failure_is_none(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HVD_TEST_REQUIRE", "all")
    assert outcome(suite, "def test_it(): pytest.xfail({reason!r})", "known")[:2] == (0, 0)


def test_a_misspelt_value_is_refused(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HVD_TEST_REQUIRE", "al")
    suite.makepyfile("def test_it(): pass")
    result = suite.runpytest_inprocess()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*HVD_TEST_REQUIRE is 'al'; it may be 'all' or unset.*"])
