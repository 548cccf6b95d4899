"""Row-major views of tensors whose elements lie densely in memory in another order, e.g. channels_last weights.

Used by the optimizers, so that the gradients of such weights need no copy. All ranks see the same view, because their
parameters have the same strides, and a gradient goes in the order of its parameter; where parameters do not, the shapes
of the views differ and the negotiation says so.
"""

from __future__ import annotations

from typing import Optional

import torch

__all__ = ["dense_view", "in_order_of"]


def in_order_of(parameter: torch.Tensor, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, bool]:
    """A gradient as it is reduced.

    Args:
        parameter: strided.
        grad: of the same shape and any strides, strided.

    Returns:
        A tensor that holds the result when the reduction ends, which shares the gradient's memory or is a copy; a
        contiguous view of that, in the order of the parameter's elements in memory; whether it is a copy.
    """
    own = grad.data
    if not own.is_neg():
        if own.is_contiguous() and parameter.is_contiguous():
            return own, own, False
        view = dense_view(own) if own.stride() == parameter.stride() else None
        if view is not None:
            return own, view, False
    if parameter.is_contiguous() or dense_view(parameter) is None:
        own = own.resolve_neg().contiguous()
        return own, own, True
    own = torch.empty_strided(own.shape, parameter.stride(), dtype=own.dtype, device=own.device).copy_(own)
    view = dense_view(own)
    assert view is not None
    return own, view, True


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
