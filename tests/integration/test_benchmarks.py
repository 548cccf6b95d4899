"""The benchmarks run from end to end and are right: `run_all.py --quick`, and two checkouts in `compare.py`."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest
from jobs import ROOT, Job, Place, python, run_well
from jobs.needs import needs

pytestmark = needs("torch")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_quick_run(tmp_path: Path) -> None:
    # "core" and "negotiation" need native programs or more time; "import" is measured alone.
    rows = ["allreduce", "gradients", "training", "idle", "import"]
    program = ROOT / "benchmarks" / "run_all.py"
    run_well(python(program, "--quick", "--no-native", "--output", tmp_path, "--rows", *rows), patience_s=580)
    (run,) = json.loads((tmp_path / "report.json").read_text())["runs"]
    ours = [entry for row in run for entry in row["entries"] if entry["kind"] == "ours"]
    assert ours and all(entry["void"] is None for entry in ours)
    assert "Targets" in (tmp_path / "report.md").read_text()


@pytest.mark.slow
def test_interrupted_it_reports_what_it_has(tmp_path: Path) -> None:
    words = [ROOT / "benchmarks" / "run_all.py", "--no-native", "--output", tmp_path, "--slice", "0.05"]
    with Place() as place:
        job = Job(place)
        job.start(python(*words, "--rows", "idle", "allreduce"))
        job.await_text("allreduce 1 KB")  # so 4 B is measured
        job.signal(job.process.pid, signal.SIGINT)
        ended = job.end()
        assert (ended.code, job.processes()) == (130, {}), str(ended)
    (run,) = json.loads((tmp_path / "report.json").read_text())["runs"]
    assert "allreduce 4 B" in [row["name"] for row in run]
    assert "INTERRUPTED" in ended.stdout and "Traceback" not in ended.output


@pytest.mark.slow
def test_it_ends_in_time(tmp_path: Path) -> None:
    words = ["--minutes", "0.5", "--no-native", "--output", tmp_path, "--rows", "idle", "allreduce", "gradients"]
    run_well(python(ROOT / "benchmarks" / "run_all.py", *words))
    text = (tmp_path / "report.md").read_text()
    assert "what fits into 0:30 minutes" in text
    taken = re.search(r"run 1 \((\d+) s\)", text)
    # A row that is under way may end its round, which takes seconds where others use the cores.
    assert taken and int(taken[1]) < 45


@pytest.mark.slow
def test_a_checkout_against_itself() -> None:
    program = ROOT / "benchmarks" / "compare.py"
    output = run_well(python(program, ROOT, "--rounds", "3", "--slice", "0.02", "--only", "allreduce"))
    rows = [line.strip("| ").split(" | ") for line in output.splitlines()[2:]]
    assert [row[0] for row in rows] == [
        f"allreduce {size}" for size in ("4 B", "1 KB", "4 KB", "64 KB", "1 MB", "16 MB")
    ]
    assert all(float(figure) > 0 for row in rows for figure in row[1:4])
