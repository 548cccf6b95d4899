"""Runs one contract job and reads its ranks' reports. Used by the contract tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Optional, Union

from jobs import horovodrun, on_hosts, run

HERE = Path(__file__).resolve().parent

# After it each rank prints its stacks and ends; the launcher is killed some seconds later.
DEADLINE_S = 100.0


def run_job(
    size: Union[int, Sequence[int]],
    target: str,
    parts: Sequence[str],
    directory: Path,
    environment: Optional[Mapping[str, str]] = None,
    script: str = "worker.py",
    warm: str = "",
) -> list[dict[str, Any]]:
    """Runs a script of this folder on `size` ranks; fails the test if a rank failed, is missing or was too slow.

    Args:
        size: number of ranks; 0: one process without a launcher. Or of those on each of several hosts.
        target: framework.
        parts: of `worker.PARTS`, or the script's other arguments.
        directory: for the ranks, empty.
        environment: additional variables.
        script: "worker.py" or "stress.py".
        warm: the framework that the ranks find imported.

    Returns:
        The ranks' reports.
    """
    options = ["--target", target, "--directory", directory, "--deadline", DEADLINE_S, *parts]
    words = (HERE / script, *options)
    start = horovodrun if isinstance(size, int) else on_hosts
    command = start(size, *words, warm=warm)
    ended = run(command, environment, patience_s=DEADLINE_S + 15)
    reports = ended.of("contract")
    failures = [f"rank {report['rank']}: {text}" for report in reports for text in report["failures"]]
    expected = max(size, 1) if isinstance(size, int) else sum(size)
    missing = sorted(set(range(expected)) - {report["rank"] for report in reports})
    assert not failures and not missing and ended.code == 0, "\n".join(
        [f"{script} {options}: no report from ranks {missing}", *failures, str(ended)]
    )
    return sorted(reports, key=lambda report: int(report["rank"]))
