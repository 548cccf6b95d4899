"""`hvd.Compression` of the Keras modules: the compressors of the backend that Keras runs on."""

from __future__ import annotations

from typing import Any, Final

from horovod._core import compression as core
from horovod._core import numpy_adapter
from horovod._core.compression import Compressor
from horovod.keras.installed import keras

__all__ = ["Compression", "for_arrays"]

_OF_ARRAYS: Final = core.Compression(numpy_adapter.adapter)


def _of_backend() -> Any:
    backend = keras.backend.backend()
    if backend == "tensorflow":
        from horovod.tensorflow.compression import Compression as of_tensorflow

        return of_tensorflow
    if backend == "torch":
        from horovod.torch.compression import Compression as of_torch

        return of_torch
    # JAX's gradients are compressed as NumPy arrays, outside of the compiled step.
    return _OF_ARRAYS


Compression: Final = _of_backend()


def for_arrays(compressor: Compressor) -> Compressor:
    """The same compressor for NumPy arrays; one of the user's own as it is."""
    if compressor is Compression.fp16:
        return _OF_ARRAYS.fp16
    if compressor is Compression.bf16:
        return _OF_ARRAYS.bf16
    return compressor
