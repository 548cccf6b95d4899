"""The harness that starts the ranks of all suites (tests/jobs)."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Callable

import pytest
from jobs import Hangs, Job, Place, python, run, run_well
from jobs.cases import CaseJob

SLEEPER = "import jobs.report, os, time; os.setsid(); jobs.report.report('here'); time.sleep(1000)"
CASES = """
from types import SimpleNamespace
from jobs.case_runner import run_cases

def case_good(): pass
def case_bad(): raise ValueError("bad luck")
def case_after(): pass

run_cases(globals(), SimpleNamespace(init=lambda: None, shutdown=lambda: None))
"""


def test_what_a_job_said_is_kept_apart() -> None:
    program = """
import sys
from jobs.report import report
print("out"), print("err", file=sys.stderr), report("one", n=1), report("two"), report("one", n=2)
sys.exit(3)
"""
    ended = run(python("-c", program))
    assert (ended.code, ended.stdout, ended.stderr) == (3, "out\n", "err\n")
    assert [event["n"] for event in ended.of("one")] == [1, 2]
    assert [event["event"] for event in ended.events] == ["one", "two", "one"]


def test_a_command_that_must_succeed_fails_with_all_it_said() -> None:
    with pytest.raises(AssertionError, match="(?s)code 7.*the reason"):
        run_well(python("-c", "import sys; print('the reason', file=sys.stderr); sys.exit(7)"))


def test_nothing_outlives_the_place() -> None:
    program = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {SLEEPER!r}])"
    with Place() as place:
        job = Job(place)
        job.start(python("-c", program))
        assert job.wait() == 0
        (here,) = _until(lambda: job.events("here"))
        assert here["pid"] in job.processes()
        assert any(f"{here['pid']} " in name for name in job.end(leftovers=True).leftovers)
    _until(lambda: [] if _alive(here["pid"]) else [True])
    assert not place.folder.exists()


def test_a_job_that_hangs_is_reported_and_ended() -> None:
    with pytest.raises(Hangs, match='(?s)did not end within 2 s.*"here"'):
        run(python("-c", SLEEPER), patience_s=2)


def test_waiting_for_what_never_comes_ends_with_the_job() -> None:
    with Place() as place:
        job = Job(place)
        job.start(python("-c", "print('no more')"))
        with pytest.raises(Hangs, match="(?s)Waited for 1 things.*no more"):
            job.await_events("never", 1)


def test_variables_of_other_launchers_do_not_reach_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "RANK", "MASTER_ADDR"):
        monkeypatch.setenv(name, "1")
    said = run_well(python("-c", "import json, os; print(json.dumps(sorted(os.environ)))"), {"HOROVOD_CYCLE_TIME": "1"})
    names = [name for name in json.loads(said) if name.startswith(("HOROVOD", "OMPI", "RANK", "MASTER"))]
    assert names == ["HOROVOD_CYCLE_TIME"]


def test_cases_fail_by_name(tmp_path: Path) -> None:
    script = tmp_path / "worker.py"
    script.write_text(CASES)
    job = CaseJob(script, ranks=1)
    assert job.cases == ["case_good", "case_bad", "case_after"]
    job.check("case_good")
    with pytest.raises(pytest.fail.Exception, match="(?s)case_bad failed on 1 .*bad luck"):
        job.check("case_bad")
    with pytest.raises(pytest.fail.Exception, match="case_after ended on 0 of 1 ranks"):
        job.check("case_after")


def test_a_job_that_ends_badly_after_its_cases_fails_them(tmp_path: Path) -> None:
    script = tmp_path / "worker.py"
    script.write_text(CASES.replace("case_bad", "bad").replace("case_after", "after") + "\nimport sys\nsys.exit(3)\n")
    job = CaseJob(script, ranks=1)
    assert job.cases == ["case_good"]
    with pytest.raises(pytest.fail.Exception, match="did not end well"):
        job.check("case_good")


def _until(look: Callable[[], list[Any]]) -> list[Any]:
    deadline = time.monotonic() + 30
    while not (found := look()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
