"""Import path of existing scripts: `horovod._keras.callbacks`, with Keras' backend as the first argument."""

from __future__ import annotations

from horovod._keras import taking_a_backend
from horovod.keras import callbacks

__all__ = [
    "BroadcastGlobalVariablesCallbackImpl",
    "LearningRateScheduleCallbackImpl",
    "LearningRateWarmupCallbackImpl",
    "MetricAverageCallbackImpl",
]

BroadcastGlobalVariablesCallbackImpl = taking_a_backend(callbacks.BroadcastGlobalVariablesCallback, __name__)
LearningRateScheduleCallbackImpl = taking_a_backend(callbacks.LearningRateScheduleCallback, __name__)
LearningRateWarmupCallbackImpl = taking_a_backend(callbacks.LearningRateWarmupCallback, __name__)
MetricAverageCallbackImpl = taking_a_backend(callbacks.MetricAverageCallback, __name__)
