"""Row-major views of tensors whose elements lie densely in memory in another order, e.g. channels_last weights.

Used by the optimizer and the broadcasts, so that such tensors need no copy. All ranks see the same view, because they
have the same strides; where they do not, the permuted shapes differ and the negotiation says so.
"""

from __future__ import annotations

from typing import Optional

import torch

__all__ = ["dense_view"]


def dense_view(tensor: torch.Tensor) -> Optional[torch.Tensor]:
    """A detached, contiguous view of the same elements, dimensions sorted by falling stride; None if they have gaps or
    overlap.

    Args:
        tensor: any tensor.
    """
    if tensor.layout is not torch.strided or tensor.is_neg() or tensor.is_conj():
        return None
    plain = tensor.detach()
    if plain.is_contiguous():
        return plain
    strides = plain.stride()
    # Dimensions of extent 1 may have any stride; sorting by extent as well keeps them in a defined place.
    order = sorted(range(plain.dim()), key=lambda axis: (-strides[axis], -plain.shape[axis], axis))
    view = plain.permute(order)
    return view if view.is_contiguous() else None
