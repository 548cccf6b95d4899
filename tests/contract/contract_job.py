"""Starts one contract job with our own launcher and reads its ranks' reports. Used by `test_contract`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent

# After it each rank prints its stacks and ends; the launcher is killed some seconds later.
DEADLINE_S = 100.0

_REPORT = re.compile(r"^(?:\[\d+\]<stdout>:)?CONTRACT (\{.*\})\s*$", re.MULTILINE)


class JobFailure(AssertionError):
    """A job went wrong; the text holds what every rank said."""


def run_job(
    size: int,
    target: str,
    parts: Sequence[str],
    directory: Path,
    environment: Optional[Mapping[str, str]] = None,
    script: str = "worker.py",
) -> list[dict[str, Any]]:
    """Runs a script of this folder on `size` ranks.

    Args:
        size: number of ranks; 0: one process without a launcher.
        target: framework.
        parts: of `worker.PARTS`, or the script's other arguments.
        directory: for the ranks, empty.
        environment: additional variables.
        script: "worker.py" or "stress.py".

    Returns:
        The ranks' reports.

    Raises:
        JobFailure: a rank failed, is missing or was too slow; with the output of all ranks.
    """
    launcher = [sys.executable, "-m", "horovod.runner", "-np", str(size)] if size else []
    worker = [sys.executable, str(HERE / script), "--target", target, "--directory", str(directory)]
    command = [*launcher, *worker, "--deadline", str(DEADLINE_S), *parts]
    variables = {name: value for name, value in os.environ.items() if not name.startswith("HOROVOD_") or _kept(name)}
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    variables.update({"PYTHONPATH": path, "OMP_NUM_THREADS": "1", **(environment or {})})
    try:
        done = subprocess.run(
            command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=DEADLINE_S + 15
        )
        output, code = done.stdout, str(done.returncode)
    except subprocess.TimeoutExpired as late:
        output, code = (late.stdout or b"").decode(errors="replace"), "none: killed after its deadline"
    reports = [json.loads(text) for text in _REPORT.findall(output)]
    failures = [f"rank {report['rank']}: {text}" for report in reports for text in report["failures"]]
    missing = sorted(set(range(max(size, 1))) - {report["rank"] for report in reports})
    if failures or missing or code != "0":
        head = [f"{' '.join(command)}: exit code {code}; no report from ranks {missing}", *failures]
        raise JobFailure("\n".join([*head, "---- output of all ranks", output]))
    return sorted(reports, key=lambda report: int(report["rank"]))


def _kept(name: str) -> bool:
    # The library under test; everything else of the caller's must not reach the job.
    return name == "HOROVOD_LIBRARY"
