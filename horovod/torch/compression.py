"""Gradient compression for torch tensors: `Compression.none`, `.fp16` and `.bf16`.

The casts are written once in `horovod._core.compression`; here they meet the torch adapter. They are differentiable.
"""

from __future__ import annotations

from horovod._core.compression import Compression as _Compression
from horovod._core.compression import Compressor, NoneCompressor
from horovod.torch.adapter import adapter

__all__ = ["BF16Compressor", "Compression", "Compressor", "FP16Compressor", "NoneCompressor"]

Compression = _Compression(adapter)
FP16Compressor = Compression.fp16
BF16Compressor = Compression.bf16
