"""In-place broadcast of many named tensors at once, whatever their strides. Used by `functions` and
`optimizer_state`."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from horovod._core.life import handles
from horovod.torch.adapter import adapter
from horovod.torch.layout import dense_view
from horovod.torch.ops import broadcast_async_

__all__ = ["broadcast_tensors"]


def broadcast_tensors(named: Sequence[tuple[str, torch.Tensor]], root_rank: int) -> None:
    """Overwrites each tensor with the root's. Collective: the same names, dtypes and shapes on all ranks.

    Args:
        named: (name, tensor); a tensor that occurs under several names is sent under each.
        root_rank: global rank that has the values.
    """
    pending: list[int] = []
    late: list[tuple[torch.Tensor, torch.Tensor]] = []
    for name, tensor in named:
        view = dense_view(tensor)
        if view is None:
            view = adapter.contiguous(tensor)
            late.append((tensor, view))
        pending.append(broadcast_async_(view, root_rank, name=name))
    for handle in pending:
        handles.synchronize(handle)
    for tensor, view in late:
        adapter.copy_into(tensor, view)
