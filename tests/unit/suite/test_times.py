"""The record of a run's time (tools/report_times.py): what it prints, and what it refuses."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools"))

report_times = pytest.importorskip("report_times", exc_type=ImportError, reason="Python is older than 3.11.")

FAILED = (
    '<testcase classname="tests.unit.net.test_b" name="test_2" time="1"><failure message="late&#10;by 3 s"/></testcase>'
)
FIRST = f"""<testsuites><testsuite>
<testcase classname="tests.unit.core.test_a" name="test_1" time="2.5"/>{FAILED}
<testcase classname="tests.integration.torch.test_c" name="test_3" time="4"/>
</testsuite></testsuites>"""
PASSED = '<testsuite><testcase classname="tests.unit.net.test_b" name="test_2" time="1"/></testsuite>'


def report_of(
    folder: Path, capsys: pytest.CaptureFixture[str], again: str, budgets: str = "", first: str = FIRST, parts: str = ""
) -> tuple[int, list[str]]:
    """Exit code and lines for a run of one record and one part."""
    (folder / "fast.xml").write_text(first)
    (folder / "fast.again.xml").write_text(again)
    (folder / "parts").write_text("check 30\n" + parts)
    (folder / "budgets").write_text(
        "[seconds]\ncheck = 60\n'tests/unit (fast)' = 10\n'tests/integration/torch (fast)' = 10\n" + budgets
    )
    code = report_times.main(folder, folder / "budgets")
    return code, capsys.readouterr().out.splitlines()


def test_what_failed_once_stands_at_the_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = report_of(tmp_path, capsys, PASSED)
    assert (code, lines[-1]) == (0, "FAILED ONCE: tests.unit.net.test_b::test_2 (fast): late")


def test_what_failed_twice_has_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = report_of(tmp_path, capsys, f"<testsuite>{FAILED}</testsuite>")
    assert (code, lines[-1]) == (0, "FAILED: tests.unit.net.test_b::test_2 (fast): late")


def test_a_test_in_cpp_that_fails_once_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flaky = '<testsuite><testcase classname="tests.native" name="a" time="1"><flakyFailure/></testcase></testsuite>'
    _, lines = report_of(tmp_path, capsys, PASSED, "'tests/native (fast)' = 5\n", flaky)
    assert lines[-1].startswith("FAILED ONCE: tests.native::a")


@pytest.mark.parametrize(
    ("budgets", "line"),
    [
        ("'tests/unit (fast)' = 3\n", "TOO LONG: tests/unit (fast) took 4 s; its budget is 3 s."),
        ("check = 20\n", "TOO LONG: check took 30 s; its budget is 20 s."),
    ],
)
def test_a_budget_that_is_exceeded_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], budgets: str, line: str
) -> None:
    for path, text in (("fast.xml", FIRST), ("parts", "check 30\ncheck 0\n")):
        (tmp_path / path).write_text(text)
    usual = {"check": "check = 60\n", "tests": "'tests/unit (fast)' = 10\n"}
    kept = "".join(text for name, text in usual.items() if name not in budgets)
    (tmp_path / "budgets").write_text(f"[seconds]\n'tests/integration/torch (fast)' = 20\n{kept}{budgets}")
    assert report_times.main(tmp_path, tmp_path / "budgets") == 1
    assert line in capsys.readouterr().out.splitlines()


def test_what_has_no_budget_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new = '<testsuite><testcase classname="tests.new.test_n" name="test" time="1"/></testsuite>'
    code, lines = report_of(tmp_path, capsys, PASSED, "ci = 100\n", new, "ci 60\n")
    assert code == 1 and "NO BUDGET: tests/new (fast) took 1 s. Give it a budget." in lines
    assert report_of(tmp_path, capsys, PASSED, first=new)[0] == 0  # a run of a part only


def test_on_a_slow_machine_a_folder_may_take_as_much_more() -> None:
    budgets = {"a": 10, "b": 10, "c": 10, "ci": 60}
    slow = {"a": 8.0, "b": 9.0, "c": 15.0}
    assert report_times.overruns(slow, {}, budgets) == []
    assert report_times.overruns({**slow, "a": 2.0, "b": 3.0}, {}, budgets) == [
        "TOO LONG: c took 15 s; its budget is 10 s."
    ]
    assert len(report_times.overruns(slow, {"ci": 61}, budgets)) == 1
