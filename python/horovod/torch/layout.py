"""Row-major views of tensors whose elements lie densely in memory in another order, e.g. channels_last weights.

Used by the optimizers, so that the gradients of such weights need no copy. All ranks see the same view, because they
have the same strides; where they do not, the shapes of the views differ and the negotiation says so.
"""

from __future__ import annotations

from typing import Optional

import torch

__all__ = ["dense_view"]


def dense_view(tensor: torch.Tensor) -> Optional[torch.Tensor]:
    """A detached, contiguous view of the same elements, dimensions sorted by falling stride; None if they have gaps or
    overlap, or if their order cannot be read from the shape of the view: a square matrix in column-major order has that
    of one in row-major order, which another rank may have.

    Args:
        tensor: any tensor.
    """
    if tensor.layout is not torch.strided or tensor.is_neg() or tensor.is_conj():
        return None
    plain = tensor.detach()
    if plain.is_contiguous():
        return plain
    shape, strides = plain.shape, plain.stride()
    # Dimensions of extent 1, which may have any stride, come first.
    order = sorted(range(plain.dim()), key=lambda axis: (shape[axis] > 1, -strides[axis], axis))
    wide = [axis for axis in order if shape[axis] > 1]
    if any(shape[a] == shape[b] and a > b for place, a in enumerate(wide) for b in wide[place:]):
        return None
    view = plain.permute(order)
    return view if view.is_contiguous() else None
