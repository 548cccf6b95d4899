"""A process of tests that crashes ends the run with a code of its own: some tests have not run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from jobs.variables import environment

TESTS = Path(__file__).parents[2]


@pytest.mark.parametrize(("last_words", "code"), [("os.kill(os.getpid(), 9)", 3), ("assert False", 1), ("pass", 0)])
def test_a_crash_is_no_failure_that_is_tried_once_more(last_words: str, code: int, tmp_path: Path) -> None:
    for number in range(4):
        ends = last_words if number == 1 else "pass"
        tests = "".join(f"def test_{i}():\n    {ends if i == 2 else 'pass'}\n" for i in range(5))
        (tmp_path / f"test_{number}.py").write_text(f"import os\n{tests}")
    words = "-m pytest -q -p conftest -p no:cacheprovider -n 2 --dist loadfile --max-worker-restart 0 -c /dev/null"
    ended = subprocess.run(
        [sys.executable, *words.split(), f"--rootdir={tmp_path}", str(tmp_path)],
        env={**environment(), "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == code, ended.stdout + ended.stderr
    assert ("crashed while running" in ended.stdout) == (code == 3)
