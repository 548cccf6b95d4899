"""Starts a worker script with several ranks and tells how its cases went, for the tests of `horovod.torch`.

One job serves all cases of a script, because starting ranks that import torch takes seconds. This folder must be no
package: as one, its name would hide the real torch.
"""

from __future__ import annotations

import ast
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import pytest

WORKERS = pathlib.Path(__file__).parent / "workers"
ROOT = pathlib.Path(__file__).parents[3]


def environment(**more: str) -> dict[str, str]:
    """The environment of a job: this source tree, one thread per rank."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **more}


class TorchJob:
    """A worker script and the number of ranks to run it with.

    Args:
        script: name of a file in `workers`.
        ranks: number of ranks; 1 = without the launcher.
        environ: further environment variables.
        timeout_s: after which the job is ended.
        without: leave out the cases with this word in their name.
    """

    def __init__(self, script: str, ranks: int = 2, timeout_s: float = 100, without: str = "", **environ: str) -> None:
        self.script = WORKERS / script
        self.without = without
        self.ranks = ranks
        self.environ = environ
        self.timeout_s = timeout_s
        self._results: dict[str, list[dict[str, object]]] = {}
        self._log = ""
        self._started = False

    @property
    def cases(self) -> list[str]:
        """Names of the script's cases, in order."""
        tree = ast.parse(self.script.read_text())
        names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("case_")]
        return [name for name in names if not self.without or self.without not in name]

    def check(self, case: str) -> None:
        """Fails the test unless the case succeeded on every rank."""
        if not self._started:
            self._started = True
            self._run()
        results = self._results.get(case, [])
        errors = [str(result["error"]) for result in results if result["error"]]
        if errors:
            pytest.fail(f"{case} failed on {len(errors)} rank(s):\n{errors[0]}", pytrace=False)
        if len(results) != self.ranks:
            pytest.fail(
                f"{case} ended on {len(results)} of {self.ranks} ranks. Output of the job:\n{self._log[-6000:]}",
                pytrace=False,
            )

    def _run(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            told = {"TEST_RESULTS": folder, "TEST_CASES": ",".join(self.cases), "TEST_TIMEOUT_S": str(self.timeout_s)}
            environ = environment(**told, **self.environ)
            command = [sys.executable, str(self.script)]
            if self.ranks > 1:
                command = [sys.executable, "-m", "horovod.runner", "-np", str(self.ranks), *command]
            try:
                done = subprocess.run(
                    command, env=environ, capture_output=True, text=True, timeout=self.timeout_s, check=False
                )
                self._log = done.stdout + done.stderr
            except subprocess.TimeoutExpired as expired:
                self._log = (
                    f"The job did not end within {self.timeout_s} s.\n" + _text(expired.stdout) + _text(expired.stderr)
                )
            for path in sorted(pathlib.Path(folder).glob("rank.*")):
                for line in path.read_text().splitlines():
                    result = json.loads(line)
                    self._results.setdefault(result["case"], []).append(result)


def _text(data: object) -> str:
    return data.decode(errors="replace") if isinstance(data, bytes) else str(data or "")
