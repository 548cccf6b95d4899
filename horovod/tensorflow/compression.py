"""Import path kept for users' scripts: `hvd.Compression` of TensorFlow."""

from __future__ import annotations

from typing import Final

from horovod._core.compression import Compression as _Compression
from horovod.tensorflow.adapter import adapter

__all__ = ["Compression"]

Compression: Final = _Compression(adapter)
