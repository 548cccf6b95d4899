"""Import path kept for users' scripts: `horovod.tensorflow.mpi_ops`. Re-exports."""

from __future__ import annotations

from horovod._core import public as _public
from horovod._core.basics import basics as _basics
from horovod._core.public import *  # noqa: F403
from horovod.tensorflow import ops as _ops
from horovod.tensorflow.ops import *  # noqa: F403
from horovod.tensorflow.util import check_num_rank_power_of_2, gpu_available, handle_average_backwards_compatibility

__all__ = [
    "_basics",
    "check_num_rank_power_of_2",
    "gpu_available",
    "handle_average_backwards_compatibility",
]
__all__ += _public.__all__
__all__ += _ops.__all__
