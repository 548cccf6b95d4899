"""`metrics`: what the engine of this rank has done, as a dictionary."""

from __future__ import annotations

import json
from typing import Any

from horovod._core.life import session

__all__ = ["metrics"]


def metrics() -> dict[str, Any]:
    """What this rank has done since `init`, or since the last reset of an elastic job. Not collective.

    Returns:
        rank, size; operations: for each kind that has moved tensors, such as "allreduce", how many `tensors` of this
        rank and how many `bytes` they had; batches: how many times the engine moved tensors together, and
        batches_by_backend: how many of them each backend carried ("host", "nccl", ...; small operations that take the
        short way are in none); in_flight: how many tensors are submitted and not done; failed: whether the engine has
        given up. The numbers only grow, except in_flight.

    Raises:
        NotInitializedError: `init` has not been called.
    """
    told = json.loads(session.require().engine.describe())
    counters = told["counters"]
    return {
        **{name: told[name] for name in ("rank", "size", "failed")},
        **{name: counters[name] for name in ("operations", "batches", "in_flight")},
        "batches_by_backend": {each["name"]: each["batches"] for each in told["backends"] if each["batches"]},
    }
