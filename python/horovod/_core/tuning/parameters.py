"""What may be changed while the job runs, as one value. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class Parameters:
    """Values as the settings of the same names have them; None: decided by topology."""

    fusion_threshold_bytes: int
    cycle_time_ms: float
    hierarchical_allreduce: Optional[bool] = None
    hierarchical_allgather: Optional[bool] = None
    torus_allreduce: Optional[bool] = None
