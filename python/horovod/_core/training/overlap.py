"""Whether it can pay to reduce gradients while others are computed, and which ones then go together.

Used by the gradient reducers of the frameworks. The ranks need not agree: when a gradient is submitted does not matter
to the others.
"""

from __future__ import annotations

import json
from typing import Final

from horovod._core.life.session import Session

__all__ = ["MOST_GATHERED_BYTES", "SMALL_BYTES", "overlap_can_pay"]

# A gradient of fewer bytes is reduced in less time than it takes to interrupt the computation for it alone.
SMALL_BYTES: Final = 64 << 10
# Small ones go together, until they are more than these.
MOST_GATHERED_BYTES: Final = 1 << 20


def overlap_can_pay(current: Session) -> bool:
    """Returns False if all ranks are on one host with fewer than two cores each: a reduction then takes time from the
    computation. True: cores are left, or the ranks wait for a network."""
    facts = json.loads(current.engine.describe())
    return bool(facts["shared_memory_ranks"] < facts["size"] or facts["cores_per_rank"] > 1)
