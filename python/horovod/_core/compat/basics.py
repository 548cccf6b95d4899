"""The functions of `context` and the reduce operations as members of one object, the way upstream's users know it
(`hvd.mpi_ops._basics`). No logic of its own."""

from __future__ import annotations

from typing import Any, Final

from horovod._core.life import context, process_sets
from horovod._core.operations import reduce_ops

__all__ = ["HorovodBasics", "basics"]


class HorovodBasics:
    """Life, place and abilities of this process as methods; see `horovod._core.life.context` for each.

    Args:
        pkg_path: where upstream's extension of a framework lay.
        *args: its name. Every framework is served by the one core here, so both change nothing.
    """

    Average = reduce_ops.Average
    Sum = reduce_ops.Sum
    Adasum = reduce_ops.Adasum
    Min = reduce_ops.Min
    Max = reduce_ops.Max
    Product = reduce_ops.Product

    def __init__(self, pkg_path: Any = None, *args: Any) -> None:
        del pkg_path, args

    init = staticmethod(context.init)
    shutdown = staticmethod(context.shutdown)
    is_initialized = staticmethod(context.is_initialized)
    start_timeline = staticmethod(context.start_timeline)
    stop_timeline = staticmethod(context.stop_timeline)
    size = staticmethod(context.size)
    local_size = staticmethod(context.local_size)
    cross_size = staticmethod(context.cross_size)
    rank = staticmethod(context.rank)
    local_rank = staticmethod(context.local_rank)
    cross_rank = staticmethod(context.cross_rank)
    is_homogeneous = staticmethod(context.is_homogeneous)
    mpi_threads_supported = staticmethod(context.mpi_threads_supported)
    mpi_enabled = staticmethod(context.mpi_enabled)
    mpi_built = staticmethod(context.mpi_built)
    gloo_enabled = staticmethod(context.gloo_enabled)
    gloo_built = staticmethod(context.gloo_built)
    nccl_built = staticmethod(context.nccl_built)
    ddl_built = staticmethod(context.ddl_built)
    ccl_built = staticmethod(context.ccl_built)
    cuda_built = staticmethod(context.cuda_built)
    rocm_built = staticmethod(context.rocm_built)
    _get_process_set_ids_and_ranks = staticmethod(process_sets.ids_and_ranks)


basics: Final = HorovodBasics()
