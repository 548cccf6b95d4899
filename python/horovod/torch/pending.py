"""`PendingGradient`: what a program finds in `parameter.grad` while the ranks' reduction of it has not ended.

Between `backward()` and `step()` a program may clip, unscale or read gradients, and must meet the reduced ones. Most
have been reduced when `backward()` returns. The others are replaced by one of these: the first operation on it waits,
and works on the reduced gradient. `reducer.GradientAccess` makes and removes them; nothing is decided here.
"""

from __future__ import annotations

import sys
from typing import Any, Callable, Protocol

import torch

__all__ = ["FRESH", "GradientOwner", "PendingGradient", "pending_gradient", "uses_of"]

# Looking at these does not wait: a rank may print shapes without the others.
_METADATA: frozenset[Any] = frozenset(
    [getattr(torch.Tensor, name).__get__ for name in ("shape", "dtype", "device", "layout", "ndim", "requires_grad")]
    + [getattr(torch.Tensor, name).__get__ for name in ("is_sparse", "is_cuda", "is_cpu", "is_leaf")]
    + [getattr(torch.Tensor, name) for name in ("size", "dim", "numel", "element_size", "is_floating_point")]
)


class GradientOwner(Protocol):
    """Who reduces gradients. The methods raise what `DistributedOptimizer.synchronize` raises."""

    def submit(self, pending: PendingGradient) -> None:
        """Submits a gradient that this rank has left out, unless it has been submitted."""

    def wait_for(self, pending: PendingGradient) -> None:
        """When it returns, `pending.given` is reduced."""


class PendingGradient(torch.Tensor):
    """A gradient whose reduction has not ended. Every operation on it waits, whether Python or C++ asks for it.

    Attributes:
        given: the gradient itself, a plain tensor.
        number: of the parameter, for `owner`.
        owner: reduces it.
    """

    given: torch.Tensor
    number: int
    owner: GradientOwner

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _METADATA:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))
        return _on_reduced(func, args, kwargs or {})

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override,unused-ignore]
        # What did not come through Python: autograd adds to a gradient, an extension calls an operator.
        return _on_reduced(func, args, kwargs or {})


def pending_gradient(given: torch.Tensor, owner: GradientOwner, number: int) -> PendingGradient:
    """One that takes the place of a gradient, dense or sparse; see `PendingGradient`."""
    made: Any = torch.Tensor._make_subclass(PendingGradient, given)
    made.given, made.owner, made.number = given, owner, number
    return made  # type: ignore[no-any-return]


def _on_reduced(func: Any, args: Any, kwargs: Any) -> Any:
    # All are submitted before one is waited for: the ranks may have left out different ones.
    args, kwargs = _each(_submitted, args), _each(_submitted, kwargs)
    return func(*_each(_reduced, args), **_each(_reduced, kwargs))


def _submitted(pending: PendingGradient) -> PendingGradient:
    pending.owner.submit(pending)
    return pending


def _reduced(pending: PendingGradient) -> torch.Tensor:
    pending.owner.wait_for(pending)
    return pending.given


def _each(change: Callable[[PendingGradient], Any], value: Any) -> Any:
    """The value with each pending gradient in it changed."""
    if type(value) is PendingGradient:
        return change(value)
    if type(value) in (list, tuple):
        return type(value)(_each(change, entry) for entry in value)
    if type(value) is dict:
        return {key: _each(change, entry) for key, entry in value.items()}
    return value


# Absent in some builds; then a storage that only another view holds is not noticed.
_storage_use_count: Callable[[int], int] = getattr(torch._C, "_storage_Use_Count", lambda cdata: 0)


def uses_of(sent: tuple[Any, ...]) -> tuple[int, int]:
    """How many refer to the first entry of a tuple, a dense or sparse tensor, and how many tensors share its memory.
    Beside `FRESH`."""
    given = sent[0]
    views = 0 if given.layout is not torch.strided else _storage_use_count(given.untyped_storage()._cdata)
    return sys.getrefcount(given), views


def _uses_of_fresh() -> tuple[int, int]:
    parameter = torch.zeros(1)
    parameter.grad = torch.zeros(1)
    return uses_of((parameter.grad, None))


# Of a gradient that a parameter and such a tuple hold. Measured: it depends on the versions of Python and torch.
FRESH = _uses_of_fresh()


def _count_as_plain() -> None:
    """Lets PyTorch's multi-tensor functions take these: a rank that holds some must not compute norms in another order
    than one that holds none."""
    try:
        from torch.utils._foreach_utils import _foreach_supported_types as supported
    except ImportError:
        return
    if PendingGradient not in supported:
        supported.append(PendingGradient)  # type: ignore[arg-type,unused-ignore]


_count_as_plain()
