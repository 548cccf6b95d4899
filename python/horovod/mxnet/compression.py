"""The compressors for MXNet's arrays (see `horovod._core.tensors.compression`)."""

from __future__ import annotations

from horovod._core.tensors import compression as _core
from horovod._core.tensors.compression import Compressor, NoneCompressor
from horovod.mxnet.adapter import adapter

__all__ = ["BF16Compressor", "Compression", "Compressor", "FP16Compressor", "NoneCompressor"]


class Compression(_core.Compression, adapter=adapter):
    """`none` sends arrays as they are; `fp16` and `bf16` send floating ones in 16 bits."""


FP16Compressor = Compression.fp16
BF16Compressor = Compression.bf16
