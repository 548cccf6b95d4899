"""Horovod for NumPy arrays: `import horovod.numpy as hvd`.

The same functions as `horovod.torch` has for its tensors, on `numpy.ndarray`: for programs without a framework, and as
the smallest complete example of a framework module. bfloat16 and the 8-bit floats are those of `ml_dtypes`.
Out-of-place operations take any strides, NumPy's scalars and Python's numbers, of which they make arrays; in-place ones
need contiguous arrays. Nothing is differentiated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING as _TYPE_CHECKING

import horovod.numpy.installed as _installed  # noqa: F401 - first: what follows needs the framework
from horovod._core import public as _public
from horovod._core.absent import public_module as _public_module
from horovod._core.operations.objects import allgather_object, broadcast_object
from horovod._core.public import *  # noqa: F403
from horovod.numpy import elastic
from horovod.numpy import ops as _ops
from horovod.numpy.compression import Compression
from horovod.numpy.ops import *  # noqa: F403

__all__ = [
    "Compression",
    "allgather_object",
    "broadcast_object",
    "elastic",
]
__all__ += _public.__all__
__all__ += _ops.__all__

if not _TYPE_CHECKING:  # a checker would take every name for one of the module's
    __getattr__, __dir__ = _public_module(__name__, __all__)
