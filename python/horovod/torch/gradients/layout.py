"""Gradients in memory, which are reduced in place: row-major views of tensors whose elements lie densely in another
order, e.g. channels_last weights, and copies where several parameters have one gradient.

Used by the optimizers, so that the gradients of such weights need no copy. All ranks see the same view, because their
parameters have the same strides, and a gradient goes in the order of its parameter; where parameters do not, the shapes
of the views differ and the negotiation says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Optional

import torch

__all__ = ["apart", "dense_view", "in_order_of", "part_gradients"]


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


def apart(gradients: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The gradients, with a copy in the place of each that begins in memory where an earlier one does.
    `torch.autograd.grad` gives several parameters one tensor."""
    addresses: set[int] = set()
    found = []
    for gradient in gradients:
        address = gradient.data_ptr()
        found.append(gradient.clone() if address in addresses and gradient.numel() > 0 else gradient)
        addresses.add(address)
    return found


def part_gradients(parameters: Iterable[torch.Tensor]) -> None:
    """Gives parameters to which the program has assigned one gradient a gradient each."""
    # A gradient of another class may wait when it is used.
    own = [p for p in parameters if type(p.grad) is torch.Tensor and p.grad.layout is torch.strided]
    for parameter, gradient in zip(own, apart([p.grad for p in own if p.grad is not None])):
        if parameter.grad is not gradient:
            parameter.grad = gradient
