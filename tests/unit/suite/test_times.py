"""The record of a run's time (tools/report_times.py): what it prints, and what it refuses."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools"))

import report_times  # noqa: E402

FAILED = (
    '<testcase classname="tests.unit.net.test_b" name="test_2" time="1"><failure message="late&#10;by 3 s"/></testcase>'
)
FIRST = f"""<testsuites><testsuite>
<testcase classname="tests.unit.core.test_a" name="test_1" time="2.5"/>{FAILED}
<testcase classname="tests.integration.torch.test_c" name="test_3" time="4"/>
</testsuite></testsuites>"""
PASSED = '<testsuite><testcase classname="tests.unit.net.test_b" name="test_2" time="1"/></testsuite>'


def report_of(
    folder: Path, capsys: pytest.CaptureFixture[str], again: str, first: str = FIRST, parts: str = ""
) -> tuple[int, list[str]]:
    """Exit code and lines for a run of one record and one part."""
    (folder / "fast.xml").write_text(first)
    (folder / "fast.again.xml").write_text(again)
    (folder / "parts").write_text("check 30\n" + parts)
    return report_times.main(folder), capsys.readouterr().out.splitlines()


def test_what_failed_once_stands_at_the_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = report_of(tmp_path, capsys, PASSED)
    assert (code, lines[-1]) == (0, "FAILED ONCE: tests.unit.net.test_b::test_2 (fast): late")


def test_what_failed_twice_has_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = report_of(tmp_path, capsys, f"<testsuite>{FAILED}</testsuite>")
    assert (code, lines[-1]) == (0, "FAILED: tests.unit.net.test_b::test_2 (fast): late")


def test_a_test_in_cpp_that_fails_once_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flaky = '<testsuite><testcase classname="tests.native" name="a" time="1"><flakyFailure/></testcase></testsuite>'
    _, lines = report_of(tmp_path, capsys, PASSED, flaky)
    assert lines[-1].startswith("FAILED ONCE: tests.native::a")


@pytest.mark.parametrize(("seconds", "code"), [(5201, 1), (5200, 0)])
def test_a_run_of_ci_that_takes_too_long_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], seconds: int, code: int
) -> None:
    got, lines = report_of(tmp_path, capsys, PASSED, parts=f"ci {seconds}\n")
    assert got == code
    assert ("TOO LONG: CI took 5201 s; it may take 5200 s." in lines) == bool(code)
