"""Import path of existing scripts: `horovod._keras.elastic`. The callbacks with Keras' backend as the first argument,
which is not needed."""

from __future__ import annotations

from typing import Any

from horovod.keras import elastic

__all__ = ["CommitStateCallbackImpl", "UpdateBatchStateCallbackImpl", "UpdateEpochStateCallbackImpl"]


class CommitStateCallbackImpl(elastic.CommitStateCallback):
    """See `horovod.keras.elastic`."""

    def __init__(self, backend: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)


class UpdateBatchStateCallbackImpl(elastic.UpdateBatchStateCallback):
    """See `horovod.keras.elastic`."""

    def __init__(self, backend: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)


class UpdateEpochStateCallbackImpl(elastic.UpdateEpochStateCallback):
    """See `horovod.keras.elastic`."""

    def __init__(self, backend: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
