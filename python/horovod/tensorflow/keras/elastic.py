"""Import path of users' scripts: `horovod.tensorflow.keras.elastic`. Re-exports."""

from __future__ import annotations

from horovod.keras.elastic import (
    CommitStateCallback,
    KerasState,
    UpdateBatchStateCallback,
    UpdateEpochStateCallback,
    run,
)

__all__ = ["CommitStateCallback", "KerasState", "UpdateBatchStateCallback", "UpdateEpochStateCallback", "run"]
