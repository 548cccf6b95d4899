"""Starts the Keras worker script on a backend, with the jobs of the torch tests: one job serves all cases, because
ranks that import a framework take seconds to start. This folder must be no package: its name would hide the real keras.
"""

from __future__ import annotations

import ast
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "torch"))

from torch_job import ROOT, TorchJob, environment  # noqa: E402

__all__ = ["BACKENDS", "HERE", "QUIET", "ROOT", "TIMEOUT_S", "cases", "environment", "job"]

BACKENDS = ("tensorflow", "torch", "jax")
TIMEOUT_S = 220  # of a job with all its cases; the two ranks that import TensorFlow take 15 s alone
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3"}


def job(script: str, backend: str, ranks: int = 2) -> TorchJob:
    """The worker script on Keras' backend; a case runs there unless its name names other backends only."""
    made = _KerasJob(str(HERE / "workers" / script), ranks, TIMEOUT_S, KERAS_BACKEND=backend, **QUIET)
    made.backend = backend
    return made


class _KerasJob(TorchJob):
    backend = ""

    @property
    def cases(self) -> list[str]:
        return cases(self.script.name, self.backend)


def cases(script: str, backend: str) -> list[str]:
    """The names of a script's cases for a backend: `case_...`, and `case_<backend>_...`."""
    tree = ast.parse((HERE / "workers" / script).read_text())
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("case_")]
    others = tuple(f"case_{other}_" for other in BACKENDS if other != backend)
    return [name for name in names if not name.startswith(others)]
