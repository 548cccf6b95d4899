"""Import path kept for users' scripts (`hvd.mpi_ops`): re-exports, and `_basics` as far as scripts reach into it."""

from __future__ import annotations

from horovod._core import public as _public
from horovod._core.basics import basics as _basics
from horovod._core.public import *  # noqa: F403
from horovod.torch import ops as _ops
from horovod.torch.ops import *  # noqa: F403

__all__ = ["_basics"]
__all__ += _public.__all__
__all__ += _ops.__all__
