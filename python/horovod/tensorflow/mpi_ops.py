"""Import path kept for users' scripts: `horovod.tensorflow.mpi_ops`. Re-exports, and the functions by which scripts
call the operations there: of tensors as they are, the sum unless another `op` is given.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, NoReturn, Optional

from horovod._core import public as _public
from horovod._core.compat.basics import basics as _basics
from horovod._core.life.process_sets import ProcessSet, global_process_set
from horovod._core.operations.reduce_ops import Sum
from horovod._core.public import *  # noqa: F403
from horovod.tensorflow.collectives import ops as _ops
from horovod.tensorflow.collectives.ops import *  # noqa: F403
from horovod.tensorflow.util import check_num_rank_power_of_2, gpu_available, handle_average_backwards_compatibility

__all__ = [
    "MPI_LIB",
    "_allreduce",
    "_basics",
    "_grouped_allreduce",
    "_grouped_reducescatter",
    "_normalize_name",
    "_reducescatter",
    "check_num_rank_power_of_2",
    "gpu_available",
    "handle_average_backwards_compatibility",
]
__all__ += _public.__all__
__all__ += _ops.__all__


def _allreduce(
    tensor: Any,
    name: Optional[str] = None,
    op: int = Sum,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """See `horovod.tensorflow.allreduce`. Collective."""
    return _ops.allreduce(
        tensor, op=op, prescale_factor=prescale_factor, postscale_factor=postscale_factor, name=name,
        process_set=process_set, ignore_name_scope=ignore_name_scope,
    )  # fmt: skip


def _grouped_allreduce(
    tensors: Sequence[Any],
    name: Optional[str] = None,
    op: int = Sum,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """See `horovod.tensorflow.grouped_allreduce`. Collective."""
    return _ops.grouped_allreduce(
        tensors, op=op, prescale_factor=prescale_factor, postscale_factor=postscale_factor, name=name,
        process_set=process_set, ignore_name_scope=ignore_name_scope,
    )  # fmt: skip


def _reducescatter(
    tensor: Any,
    name: Optional[str] = None,
    op: int = Sum,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """See `horovod.tensorflow.reducescatter`. Collective."""
    return _ops.reducescatter(
        tensor, op=op, name=name, process_set=process_set, ignore_name_scope=ignore_name_scope,
        prescale_factor=prescale_factor, postscale_factor=postscale_factor,
    )  # fmt: skip


def _grouped_reducescatter(
    tensors: Sequence[Any],
    name: Optional[str] = None,
    op: int = Sum,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Any]:
    """See `horovod.tensorflow.grouped_reducescatter`. Collective."""
    return _ops.grouped_reducescatter(
        tensors, op=op, name=name, process_set=process_set, ignore_name_scope=ignore_name_scope,
        prescale_factor=prescale_factor, postscale_factor=postscale_factor,
    )  # fmt: skip


def _normalize_name(name: str) -> str:
    """The name with an underscore for everything that is not a letter, digit or underscore."""
    return re.sub(r"[^a-zA-Z0-9_]", "_", name)


class _OperatorLibrary:
    """What can be imported; the operators themselves take other arguments than upstream's."""

    def __getattr__(self, name: str) -> NoReturn:
        function = name.removeprefix("horovod_")
        known = function if function in _ops.__all__ else f"{function}_op" if f"{function}_op" in _ops.__all__ else ""
        raise AttributeError(
            f"MPI_LIB.{name} does not exist: this core's operators take other arguments than upstream's. Use "
            + (f"hvd.{known}." if known else "the functions of horovod.tensorflow.")
        )


MPI_LIB: Final = _OperatorLibrary()
