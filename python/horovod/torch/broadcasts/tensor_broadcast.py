"""In-place broadcast of many named tensors at once, whatever their strides, which may differ between the ranks. Used by
`functions` and `optimizer_state`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch

from horovod._core.life import handles
from horovod.torch.adapter import adapter
from horovod.torch.collectives.ops import broadcast_async_

__all__ = ["broadcast_tensors"]

_MOST_COPIED: Final = 256 << 20  # bytes at a time


def broadcast_tensors(named: Sequence[tuple[str, torch.Tensor]], root_rank: int) -> None:
    """Overwrites each tensor with the root's. Collective: the same names, dtypes and shapes on all ranks.

    Args:
        named: (name, tensor); a tensor that occurs under several names is sent under each.
        root_rank: global rank that has the values.
    """
    pending: list[int] = []
    late: list[tuple[torch.Tensor, torch.Tensor]] = []
    copied = 0

    def land() -> None:
        for handle in pending:
            handles.synchronize(handle)
        for tensor, view in late:
            adapter.copy_into(tensor, view)
        pending.clear()
        late.clear()

    for name, tensor in named:
        is_plain = adapter.is_contiguous(tensor)
        view = tensor.detach() if is_plain else adapter.contiguous(tensor)
        pending.append(broadcast_async_(view, root_rank, name=name))
        if not is_plain:
            late.append((tensor, view))
            copied += view.nbytes
        if copied > _MOST_COPIED:
            land()
            copied = 0
    land()
