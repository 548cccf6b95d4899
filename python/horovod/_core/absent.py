"""Names that do not exist here: the error says what to use instead. Those that programs for upstream import, and those
that people know from other libraries; and what completion shows of a framework module."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Callable, Final, NoReturn

__all__ = ["absent_names", "public_module"]

# Of torch.distributed, MPI and others -> what it is called here.
_OF_OTHERS: Final = {
    "DistributedDataParallel": "hvd.DistributedOptimizer around the optimizer; the model stays as it is, and begins as "
    "the root's by a broadcast (see the quickstart)",
    "DDP": "hvd.DistributedOptimizer around the optimizer; the model stays as it is",
    "DistributedSampler": "that of torch.utils.data, with num_replicas=hvd.size() and rank=hvd.rank()",
    "ReduceOp": "hvd.Sum, hvd.Average, hvd.Min, hvd.Max or hvd.Product as op=",
    "SUM": "hvd.Sum",
    "all_gather": "hvd.allgather",
    "all_gather_object": "hvd.allgather_object",
    "all_reduce": "hvd.allreduce",
    "all_to_all": "hvd.alltoall",
    "broadcast_object_list": "hvd.broadcast_object",
    "destroy_process_group": "hvd.shutdown()",
    "get_local_rank": "hvd.local_rank()",
    "get_rank": "hvd.rank()",
    "get_size": "hvd.size()",
    "get_world_size": "hvd.size()",
    "init_process_group": "hvd.init()",
    "local_world_size": "hvd.local_size()",
    "new_group": "hvd.add_process_set",
    "reduce_scatter": "hvd.reducescatter",
    "run": "horovod.run (import horovod)",
    "world_size": "hvd.size()",
}


def absent_names(module: str, instead: Mapping[str, str]) -> Callable[[str], NoReturn]:
    """The `__getattr__` of a module that lacks some names.

    Args:
        module: its name.
        instead: absent name -> what to use, as the end of "Use ...".
    """

    def __getattr__(name: str) -> NoReturn:  # noqa: N807 - becomes the module's
        if name not in instead:
            raise AttributeError(f"module '{module}' has no attribute '{name}'")
        # Not an AttributeError, whose text an import statement would replace by its own.
        raise ImportError(f"{module}.{name} does not exist here. Use {instead[name]}.", name=module)

    return __getattr__


def public_module(module: str, public: Sequence[str]) -> tuple[Callable[[str], NoReturn], Callable[[], list[str]]]:
    """The `__getattr__` and the `__dir__` of a framework module.

    Args:
        module: its name.
        public: its `__all__`.
    """

    def __getattr__(name: str) -> NoReturn:  # noqa: N807 - becomes the module's
        instead = _OF_OTHERS.get(name)
        remedy = "" if instead is None else f"; use {instead}"
        error = AttributeError(f"module '{module}' has no attribute '{name}'{remedy}")
        # As of a module without this function: Python then suggests names that are spelt alike.
        if instead is None:
            error.name, error.obj = name, sys.modules.get(module)
        raise error

    def __dir__() -> list[str]:  # noqa: N807 - as above
        own = [name for name in vars(sys.modules[module]) if name.startswith("__")]
        return sorted({*public, *own})

    return __getattr__, __dir__
