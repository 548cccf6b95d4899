"""Horovod on a Spark cluster: `run` and `run_elastic` call a function on ranks that live in the cluster's executors.

Importing this imports nothing of pyspark: they do, and so do the tasks.
"""

from __future__ import annotations

import sys

from horovod._later import MISSING, LaterModules, missing
from horovod.spark.horovod_runner import HorovodRunner
from horovod.spark.running import run, run_elastic

__all__ = ["HorovodRunner", "run", "run_elastic"]

sys.meta_path.append(LaterModules)


def __getattr__(name: str) -> object:
    """For `from horovod.spark import torch`, of which Python would say only that the name cannot be imported."""
    if f"{__name__}.{name}" in MISSING:
        raise missing(f"{__name__}.{name}")
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
