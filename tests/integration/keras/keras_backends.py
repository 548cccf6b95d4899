"""The worker scripts of this folder on each backend of Keras. This folder must be no package: its name would hide the
real keras.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from jobs.cases import CaseJob, cases_of
from jobs.warm.frameworks import FRAMEWORKS

WORKERS = Path(__file__).parent / "workers"
# Keras 3 on its three, and "legacy": Keras 2, of the package tf_keras, or the only one there is.
BACKENDS = ("tensorflow", "torch", "jax", "legacy")
TIMEOUT_S = 400  # of a job with all its cases; the longest, with a compiled step, takes 45 s alone
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


def variables_of(backend: str) -> Mapping[str, str]:
    """The environment variables that choose a backend."""
    return {} if INSTALLED == ["legacy"] else FRAMEWORKS[f"keras on {backend}"].environ


def job(script: str, backend: str, only: Sequence[str] = (), **variables: str) -> CaseJob:
    """A worker script on a backend, with more environment variables. `only`: these cases, not all."""
    chosen = [case for case in cases(script, backend) if not only or case in only]
    environ = {**variables_of(backend), **QUIET, **variables}
    return CaseJob(
        WORKERS / script,
        2,
        environ,
        chosen,
        TIMEOUT_S,
        warm=warmed(backend),
    )


def warmed(backend: str) -> str:
    """What the ranks of a job find imported."""
    return "tensorflow" if INSTALLED == ["legacy"] else f"keras on {backend}"


def cases(script: str, backend: str) -> list[str]:
    """The names of a script's cases for a backend: `case_...`, and `case_<word>_...` if the word is one of its own."""
    own = {"legacy": {"legacy", "tensorflow"}}.get(backend, {backend, "keras3"})
    others = tuple(f"case_{word}_" for word in {*BACKENDS, "keras3"} - own)
    return [name for name in cases_of(WORKERS / script) if not name.startswith(others)]


def needs_backend(backend: str) -> pytest.MarkDecorator:
    """Skips a test where Keras does not run on this backend."""
    name = "Keras 2" if backend == "legacy" else f"Keras 3 with the backend {backend}"
    return pytest.mark.skipif(backend not in INSTALLED, reason=f"{name} is not installed.")


def cases_everywhere(script: str) -> list[Any]:
    """Parameters of a test: every backend, and each case of the script there."""
    return [pytest.param(each, case, marks=needs_backend(each)) for each in BACKENDS for case in cases(script, each)]
