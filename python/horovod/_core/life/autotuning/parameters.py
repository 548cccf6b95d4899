"""What may be changed while the job runs: how tensors are batched, and which way batches go. For autotune; no user
calls this. Rank 0 changes it for all ranks, at one place of the order in which they run batches."""

from __future__ import annotations

from typing import Optional

from horovod._core.errors import InvalidArgumentError
from horovod._core.life import session
from horovod._core.tuning.parameters import Parameters

_CHOICES = ("hierarchical_allreduce", "hierarchical_allgather", "torus_allreduce")


def in_force() -> Parameters:
    """What this rank goes by now. Not collective; a change that rank 0 has asked for may still be on its way.

    Raises:
        NotInitializedError: `init` has not been called.
    """
    found = session.require().engine.tuning.parameters()
    choices = {name: None if found[name] < 0 else bool(found[name]) for name in _CHOICES}
    return Parameters(int(found["fusion_threshold_bytes"]), float(found["cycle_time_ms"]), **choices)


def change(to: Parameters) -> None:
    """Has all ranks go by `to` from the next batch that is decided on. Not collective, does not block; rank 0 only.

    Raises:
        InvalidArgumentError: this is another rank, or a value cannot be; nothing is changed then.
        NotInitializedError: `init` has not been called.
    """
    if not 0 <= to.fusion_threshold_bytes < 1 << 63:
        raise InvalidArgumentError(
            f"parameters: fusion_threshold_bytes is {to.fusion_threshold_bytes}; give 0 for no fusion, or a number of "
            "bytes below 2**63."
        )
    values = {"fusion_threshold_bytes": to.fusion_threshold_bytes, "cycle_time_ms": to.cycle_time_ms}
    for name in _CHOICES:
        chosen: Optional[bool] = getattr(to, name)
        values[name] = -1 if chosen is None else int(chosen)
    session.require().engine.tuning.set_parameters(values)
