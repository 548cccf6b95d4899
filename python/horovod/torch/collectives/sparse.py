"""Allreduce of sparse COO tensors, such as the gradients of embeddings: two allgathers, of the indices and of the
values.

Used by the optimizer and, through `ops`, by users. Duplicate indices of different ranks are summed when the result is
made.
"""

from __future__ import annotations

import torch

from horovod._core.errors import InvalidArgumentError
from horovod._core.life.process_sets import ProcessSet, global_process_set
from horovod._core.operations.sparse import SparseReduction, start_sparse_allreduce
from horovod.torch.collectives.operators import collectives
from horovod.torch.graphs import outside_graphs

__all__ = ["sparse_allreduce_async"]


@outside_graphs
def sparse_allreduce_async(
    tensor: torch.Tensor, name: str, op: int, process_set: ProcessSet = global_process_set
) -> SparseReduction:
    """Starts the reduction of a sparse tensor.

    Collective.

    Args:
        tensor: in COO layout, coalesced or not; dtype and shape equal on all members, the number of values may differ.
        name: identity of the operation, equal on all members.
        op: Average or Sum.
        process_set: the ranks that take part.

    Returns:
        A function without arguments: it waits and returns the result, a coalesced sparse tensor of the same shape. To
        be called once.

    Raises:
        InvalidArgumentError: the tensor is not in COO layout.
        UnsupportedError: another op.
    """
    if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.sparse_coo:
        kind = tensor.layout if isinstance(tensor, torch.Tensor) else type(tensor).__name__
        raise InvalidArgumentError(
            f"sparse_allreduce_async needs a tensor in COO layout. Received: {kind}; see tensor.to_sparse()."
        )
    own = tensor.detach().coalesce()

    def assemble(indices: torch.Tensor, values: torch.Tensor, divisor: int) -> torch.Tensor:
        if divisor != 1 and values.is_floating_point():
            values = values / divisor  # before they are added: the sum may be too large
        total = torch.sparse_coo_tensor(indices.t(), values, tensor.shape, check_invariants=False).coalesce()
        if divisor == 1 or values.is_floating_point():
            return total
        # As of dense tensors: an average of integers is truncated toward zero.
        average = torch.div(total.values(), divisor, rounding_mode="trunc")
        return torch.sparse_coo_tensor(
            total.indices(), average, tensor.shape, check_invariants=False, is_coalesced=True
        )

    # Rows of the first dimension are what an allgather concatenates: one row per value.
    parts = own.indices().t().contiguous(), own.values().contiguous()
    return start_sparse_allreduce(collectives, parts, name, op, process_set, assemble)
