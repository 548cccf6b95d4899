"""Which way tensors on GPUs went: the batches that each backend of the core has carried. A test of one way must fail
when another one was taken."""

from __future__ import annotations

import json
import os

from horovod._core.life import session


def batches() -> dict[str, int]:
    """By the backend's name: host, staged, nccl, hierarchical, mpi. While Horovod is initialized."""
    told = json.loads(session.require().engine.describe())
    return {backend["name"]: backend["batches"] for backend in told["backends"]}


def require_asked() -> None:
    """Raises AssertionError if HVD_TEST_WAY names a backend and it has carried nothing."""
    way = os.environ.get("HVD_TEST_WAY")
    carried = batches()
    assert not way or carried[way] > 0, f"nothing went by {way}: {carried}"
