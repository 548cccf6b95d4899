"""`hvd.Compression` of the Keras modules: the compressors of the backend that Keras runs on."""

from __future__ import annotations

from typing import Any, Final

from horovod._core.tensors.compression import Compressor, kind_of
from horovod.keras.installed import keras
from horovod.numpy.compression import Compression as _of_arrays

__all__ = ["Compression", "for_arrays"]


def _of_backend() -> Any:
    backend = keras.backend.backend()
    if backend == "tensorflow":
        from horovod.tensorflow.compression import Compression as of_tensorflow

        return of_tensorflow
    if backend == "torch":
        from horovod.torch.compression import Compression as of_torch

        return of_torch
    # JAX's gradients are compressed as NumPy arrays, outside of the compiled step.
    return _of_arrays


Compression: Final = _of_backend()


def for_arrays(compressor: Compressor) -> Compressor:
    """The same compressor for NumPy arrays; a user-defined one is returned unchanged."""
    kind = kind_of(compressor)
    if kind is Compression.fp16:
        return _of_arrays.fp16
    if kind is Compression.bf16:
        return _of_arrays.bf16
    return compressor
