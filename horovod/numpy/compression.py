"""The compressors for NumPy arrays (see `horovod._core.compression`)."""

from __future__ import annotations

from typing import Final

from horovod._core import compression
from horovod._core.numpy_adapter import adapter

Compression: Final = compression.Compression(adapter)
