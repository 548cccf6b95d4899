"""Horovod on a Spark cluster: `run` calls a function on ranks that live in the cluster's executors.

Importing this imports nothing of pyspark: `run` does, and so do the tasks.
"""

from __future__ import annotations

import sys

from horovod._core.errors import UnsupportedError
from horovod._later import MISSING, LaterModules, missing
from horovod.spark.horovod_runner import HorovodRunner
from horovod.spark.running import run

__all__ = ["HorovodRunner", "run", "run_elastic"]

sys.meta_path.append(LaterModules)


def __getattr__(name: str) -> object:
    """For `from horovod.spark import conf`, of which Python would say only that the name cannot be imported."""
    if f"{__name__}.{name}" in MISSING:
        raise missing(f"{__name__}.{name}")
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


def run_elastic(*args: object, **kwargs: object) -> None:
    """Not in this version.

    Raises:
        UnsupportedError: always; says what to use.
    """
    del args, kwargs
    raise UnsupportedError(
        "horovod.spark.run_elastic is not in this version: ranks on Spark cannot come and go. Remedy: call "
        "horovod.spark.run, and load a checkpoint when it is started again; or start an elastic job with horovodrun "
        "--host-discovery-script."
    )
