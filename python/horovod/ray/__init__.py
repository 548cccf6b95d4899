"""Horovod on a Ray cluster: the ranks of a job are actors.

Importing this imports nothing of Ray: `RayExecutor.start` does, `HorovodConfig`, and the actors. Design 0035.
"""

from __future__ import annotations

import importlib
import sys

from horovod._later import MISSING, LaterModules, missing
from horovod.ray import cluster, ray_logger
from horovod.ray.runner import RayExecutor

__all__ = ["RayExecutor", "ray_logger"]

if LaterModules not in sys.meta_path:
    sys.meta_path.append(LaterModules)


def __getattr__(name: str) -> object:
    """`HorovodConfig`, which needs Ray Train. And names of what comes later, of which Python would say only that they
    cannot be imported."""
    if name == "HorovodConfig":
        cluster.require_train(f"{__name__}.{name}")
        return importlib.import_module(f"{__name__}.train").HorovodConfig
    module = f"{__name__}.{'elastic' if name == 'ElasticRayExecutor' else name}"
    if module in MISSING:
        raise missing(module)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
