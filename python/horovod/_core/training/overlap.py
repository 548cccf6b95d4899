"""Whether it can pay to reduce gradients while others are computed.

Used by the gradient reducers of the frameworks. The ranks need not agree: when a gradient is submitted does not matter
to the others.
"""

from __future__ import annotations

import json

from horovod._core.life.session import Session

__all__ = ["overlap_can_pay"]


def overlap_can_pay(current: Session) -> bool:
    """Returns False if all ranks are on one host with fewer than two cores each: a reduction then takes time from the
    computation. True: cores are left, or the ranks wait for a network."""
    facts = json.loads(current.engine.describe())
    return bool(facts["shared_memory_ranks"] < facts["size"] or facts["cores_per_rank"] > 1)
