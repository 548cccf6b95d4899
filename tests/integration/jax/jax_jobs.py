"""Worker scripts of this folder as jobs. This folder must be no package: its name would hide the real jax."""

from __future__ import annotations

from pathlib import Path

from jobs.cases import CaseJob
from jobs.warm.frameworks import FRAMEWORKS

WORKERS = Path(__file__).parent / "workers"
WARM = "keras on jax"  # the server of Keras' tests serves
ENVIRON = FRAMEWORKS[WARM].environ
TIMEOUT_S = 300  # of a job with all its cases, which JAX compiles; 20 s on a machine that does nothing else


def job(script: str) -> CaseJob:
    """All cases of a script, on two ranks."""
    return CaseJob(WORKERS / script, 2, ENVIRON, timeout_s=TIMEOUT_S, warm=WARM)
