"""Horovod on a Ray cluster: the ranks of a job are actors.

Importing this imports nothing of Ray: `RayExecutor.start` does, `HorovodConfig`, and the actors. Designs 0035 and 0038.
"""

from __future__ import annotations

import importlib

from horovod.ray import cluster, ray_logger
from horovod.ray.runner import RayExecutor

__all__ = ["RayExecutor", "ray_logger"]


def __getattr__(name: str) -> object:
    """`HorovodConfig`, which needs Ray Train, and the deprecated `ElasticRayExecutor`."""
    if name == "HorovodConfig":
        cluster.require_train(f"{__name__}.{name}")
        return importlib.import_module(f"{__name__}.train").HorovodConfig
    if name == "ElasticRayExecutor":
        return importlib.import_module(f"{__name__}.elastic").ElasticRayExecutor
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
