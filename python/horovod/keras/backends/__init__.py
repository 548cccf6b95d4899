"""The reduction of gradients for the backend that Keras runs on; only that backend's framework is imported."""

from __future__ import annotations

from horovod._core.errors import InvalidArgumentError, UnsupportedError
from horovod.keras.installed import keras
from horovod.keras.reducer import Reducer, ReductionSettings

__all__ = ["make_reducer"]


def make_reducer(settings: ReductionSettings) -> Reducer:
    """The reduction for Keras' backend.

    Raises:
        InvalidArgumentError: a setting that this backend does not support, or invalid groups.
        UnsupportedError: a backend that cannot train.
    """
    if settings.options.process_set.size() is None:
        raise InvalidArgumentError(
            "process_set is not registered; use hvd.init(process_sets=...) or hvd.add_process_set."
        )
    backend = keras.backend.backend()
    if backend == "tensorflow":
        from horovod.keras.backends.tensorflow import TensorFlowReducer

        return TensorFlowReducer(settings)
    if any(settings.devices):
        raise InvalidArgumentError(
            f"device_dense and device_sparse place operators of TensorFlow; Keras runs on {backend}. Leave them empty."
        )
    if backend == "torch":
        from horovod.keras.backends.torch import TorchReducer

        return TorchReducer(settings)
    if backend == "jax":
        from horovod.keras.backends.jax import JaxReducer

        return JaxReducer(settings)
    raise UnsupportedError(
        f"Keras' backend {backend} cannot train. Set KERAS_BACKEND to tensorflow, torch or jax before importing keras."
    )
