"""Import path of existing scripts: `horovod._keras.callbacks`. The callbacks with Keras' backend as the first argument,
which is not needed."""

from __future__ import annotations

from typing import Any

from horovod.keras import callbacks

__all__ = [
    "BroadcastGlobalVariablesCallbackImpl",
    "LearningRateScheduleCallbackImpl",
    "LearningRateWarmupCallbackImpl",
    "MetricAverageCallbackImpl",
]


class BroadcastGlobalVariablesCallbackImpl(callbacks.BroadcastGlobalVariablesCallback):
    """See `horovod.keras.callbacks`."""

    def __init__(self, backend: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)


class MetricAverageCallbackImpl(callbacks.MetricAverageCallback):
    """See `horovod.keras.callbacks`."""

    def __init__(self, backend: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)


class LearningRateScheduleCallbackImpl(callbacks.LearningRateScheduleCallback):
    """See `horovod.keras.callbacks`."""

    def __init__(self, backend: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)


class LearningRateWarmupCallbackImpl(callbacks.LearningRateWarmupCallback):
    """See `horovod.keras.callbacks`."""

    def __init__(self, backend: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
