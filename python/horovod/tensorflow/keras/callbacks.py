"""Import path of users' scripts: `horovod.tensorflow.keras.callbacks`. Re-exports, and the one argument more that
`BestModelCheckpoint` has here."""

from __future__ import annotations

from typing import Union

from horovod.keras import callbacks
from horovod.keras.callbacks import (
    BroadcastGlobalVariablesCallback,
    LearningRateScheduleCallback,
    LearningRateWarmupCallback,
    MetricAverageCallback,
)

__all__ = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
]


class BestModelCheckpoint(callbacks.BestModelCheckpoint):
    """As of `horovod.keras.callbacks`.

    Args:
        save_weights_only: save the weights only.
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        save_weights_only: bool = False,
        mode: str = "auto",
        save_freq: Union[str, int] = "epoch",
    ) -> None:
        self._begin(monitor, verbose, save_weights_only, mode, save_freq)
