"""Starts the Keras worker script on a backend, with the jobs of the torch tests: one job serves all cases, because
ranks that import a framework take seconds to start. This folder must be no package: its name would hide the real keras.
"""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import pathlib
import sys
from collections.abc import Sequence

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "torch"))

from torch_job import ROOT, TorchJob, environment  # noqa: E402

__all__ = ["BACKENDS", "HERE", "INSTALLED", "QUIET", "ROOT", "TIMEOUT_S", "cases", "environment", "job", "variables_of"]

# Keras 3 on its three, and "legacy": Keras 2, of the package tf_keras, or the only one there is.
BACKENDS = ("tensorflow", "torch", "jax", "legacy")
TIMEOUT_S = 220  # of a job with all its cases; the two ranks that import TensorFlow take 15 s alone
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3"}


def _installed() -> list[str]:
    # Asked without importing any: a process can have one Keras only.
    if not importlib.util.find_spec("keras"):
        return []
    if importlib.metadata.version("keras").startswith("2."):
        return ["legacy"]
    modules = {**{backend: backend for backend in BACKENDS}, "legacy": "tf_keras"}
    return [backend for backend, module in modules.items() if importlib.util.find_spec(module)]


INSTALLED = _installed()


def variables_of(backend: str) -> dict[str, str]:
    """The environment variables that choose a backend."""
    if backend != "legacy":
        return {"KERAS_BACKEND": backend}
    return {} if INSTALLED == ["legacy"] else {"TF_USE_LEGACY_KERAS": "1"}


def job(script: str, backend: str, ranks: int = 2, only: Sequence[str] = ()) -> TorchJob:
    """The worker script on Keras' backend; a case runs there unless its name names other backends only. `only`: these
    cases, not all."""
    made = _KerasJob(str(HERE / "workers" / script), ranks, TIMEOUT_S, **variables_of(backend), **QUIET)
    made.backend, made.only = backend, only
    return made


class _KerasJob(TorchJob):
    backend = ""
    only: Sequence[str] = ()

    @property
    def cases(self) -> list[str]:
        return [name for name in cases(self.script.name, self.backend) if not self.only or name in self.only]


def cases(script: str, backend: str) -> list[str]:
    """The names of a script's cases for a backend: `case_...`, and `case_<word>_...` if the word is one of its own."""
    tree = ast.parse((HERE / "workers" / script).read_text())
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("case_")]
    own = {"legacy": {"legacy", "tensorflow"}}.get(backend, {backend, "keras3"})
    others = tuple(f"case_{word}_" for word in {*BACKENDS, "keras3"} - own)
    return [name for name in names if not name.startswith(others)]
