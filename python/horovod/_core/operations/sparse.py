"""The framework-neutral part of a sparse allreduce: gather everybody's indices and values, and add up where they meet.

A sparse gradient touches few rows, and different ones on each rank, so the ranks exchange (indices, values) by
allgather instead of a dense sum. The framework makes and takes apart its own sparse tensors; `SparseAllreduce` does the
rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Callable

from horovod._core.life import handles, session
from horovod._core.life.process_sets import ProcessSet
from horovod._core.operations.collectives import Collectives
from horovod._core.operations.reduce_ops import check_linear, meant

__all__ = ["SparseReduction", "start_sparse_allreduce"]


@dataclass(frozen=True)
class SparseReduction:
    """A sparse allreduce under way. A call of it waits and returns the result; to be called once.

    Attributes:
        finish: does that.
        parts: its operations, for questions about their progress.
    """

    finish: Callable[[], Any]
    parts: Sequence[handles.Pending]

    def __call__(self) -> Any:
        """See the class."""
        return self.finish()


def start_sparse_allreduce(
    collectives: Collectives,
    parts: tuple[Any, Any],
    name: str,
    op: int,
    process_set: ProcessSet,
    assemble: Callable[[Any, Any, int], Any],
) -> SparseReduction:
    """Starts the two allgathers of a sparse allreduce. Collective; the numbers of entries may differ between ranks.

    Args:
        collectives: the operations of the framework.
        parts: (indices, values): dense tensors whose first dimensions are the entries of this rank.
        name: identity of the operation.
        op: Average or Sum.
        process_set: the ranks that take part.
        assemble: (all indices, all values, divisor) -> the sparse result; entries at equal places must be added, values
            divided by the divisor.

    Returns:
        A call of it waits and returns what `assemble` makes.

    Raises:
        UnsupportedError: another op.
    """
    chosen = meant(op)
    check_linear(f"sparse_allreduce '{name}'", chosen)
    indices, values = parts
    waiting = [
        collectives.allgather_async(indices, name=f"{name}.indices", process_set=process_set),
        collectives.allgather_async(values, name=f"{name}.values", process_set=process_set),
    ]
    size = session.require().size if process_set.ranks is None else len(process_set.ranks)

    def finish() -> Any:
        # Both are waited for before either is used, so that a failure leaves none behind.
        try:
            all_indices = handles.synchronize(waiting[0])
        finally:
            all_values = handles.synchronize(waiting[1])
        return assemble(all_indices, all_values, size if chosen.row.divides else 1)

    return SparseReduction(finish, [handles.open_handles[number] for number in waiting])
