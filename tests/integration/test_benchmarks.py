"""`benchmarks/run_all.py --quick` runs from end to end, gives right results and writes its report."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_quick_run(tmp_path: Path) -> None:
    # "core", "crowded" and "negotiation" need native programs or more time; "import" is measured alone.
    command = [
        sys.executable,
        str(ROOT / "benchmarks" / "run_all.py"),
        "--quick",
        "--no-native",
        "--output",
        str(tmp_path),
    ]
    command += ["--rows", "allreduce", "gradients", "training", "idle", "import"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=580, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    (run,) = json.loads((tmp_path / "report.json").read_text())["runs"]
    ours = [entry for row in run for entry in row["entries"] if entry["kind"] == "ours"]
    assert ours and all(entry["void"] is None for entry in ours)
    assert "Targets" in (tmp_path / "report.md").read_text()
