"""The import path of scripts that take the operations from `horovod.mxnet.mpi_ops`."""

from __future__ import annotations

from horovod._core import public as _public
from horovod._core.public import *  # noqa: F403
from horovod.mxnet import ops as _ops
from horovod.mxnet.ops import *  # noqa: F403

__all__ = [*_public.__all__, *_ops.__all__]
