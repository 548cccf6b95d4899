"""A worker script with many small cases: one job runs them all, because starting ranks of a framework takes seconds.

The script defines functions `case_...` and ends with `run_cases` of `case_runner`.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

import pytest

from .commands import horovodrun
from .job import Hangs, Job, Place


def cases_of(script: Path) -> list[str]:
    """Names of the script's cases, in order, without importing it."""
    tree = ast.parse(script.read_text())
    return [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("case_")]


class CaseJob:
    """A worker script and the number of ranks to run it with; it runs when the first case is asked for.

    Args:
        script: with the cases.
        ranks: number of ranks; 1 = without the launcher.
        environ: further environment variables.
        cases: those to run; all of the script if not given.
        timeout_s: after which the job is ended.
        warm: the framework that its ranks find imported.
    """

    def __init__(
        self,
        script: Path,
        ranks: int = 2,
        environ: Optional[Mapping[str, str]] = None,
        cases: Optional[Sequence[str]] = None,
        timeout_s: float = 100,
        warm: str = "",
    ) -> None:
        self.cases = cases_of(script) if cases is None else list(cases)
        self._script, self._warm = script, warm
        self._ranks = ranks
        request = {"TEST_CASES": ",".join(self.cases), "TEST_TIMEOUT_S": str(timeout_s)}
        self._environ = {**(environ or {}), **request}
        self._timeout_s = timeout_s
        self._results: list[dict[str, Any]] = []
        self._log = ""
        self._ended_well = False

    def check(self, case: str) -> None:
        """Fails the test unless the case succeeded on every rank. If all did, the job must have ended well, too.

        A case that raises `unittest.SkipTest`, on all ranks, skips it.
        """
        if not self._log:
            self._run()
        results = [result for result in self._results if result["case"] == case]
        errors = [str(result["error"]) for result in results if result["error"]]
        if errors:
            pytest.fail(f"{case} failed on {len(errors)} rank(s):\n{errors[0]}", pytrace=False)
        if len(results) != self._ranks:
            pytest.fail(f"{case} ended on {len(results)} of {self._ranks} ranks.\n{self._log}", pytrace=False)
        if not self._ended_well and not any(result["error"] for result in self._results):
            pytest.fail(f"The job did not end well after its cases.\n{self._log}", pytrace=False)
        if missing := [str(result["skipped"]) for result in results if "skipped" in result]:
            pytest.skip(missing[0])

    def _run(self) -> None:
        with Place() as place:
            job = Job(place, self._environ)
            job.start(horovodrun(self._ranks if self._ranks > 1 else 0, self._script, warm=self._warm))
            try:
                self._ended_well = job.wait(self._timeout_s) == 0
                self._log = str(job)
            except Hangs as late:
                self._log = str(late)
            self._results = job.events("case")
