"""Import path of existing scripts: `horovod._keras.elastic`, with Keras' backend as the first argument."""

from __future__ import annotations

from horovod._keras import taking_a_backend
from horovod.keras import elastic

__all__ = ["CommitStateCallbackImpl", "UpdateBatchStateCallbackImpl", "UpdateEpochStateCallbackImpl"]

CommitStateCallbackImpl = taking_a_backend(elastic.CommitStateCallback, __name__)
UpdateBatchStateCallbackImpl = taking_a_backend(elastic.UpdateBatchStateCallback, __name__)
UpdateEpochStateCallbackImpl = taking_a_backend(elastic.UpdateEpochStateCallback, __name__)
