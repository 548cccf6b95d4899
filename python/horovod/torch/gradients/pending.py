"""`PendingGradient`: a tensor that takes the place of `parameter.grad` until the ranks have reduced that gradient.

Between `backward()` and `step()` a program may clip, unscale or read gradients, and must see the reduced ones. Most
gradients have been reduced when `backward()` returns. Each of the others is replaced by a `PendingGradient`: the first
operation on it waits for the reduction and then works on the reduced gradient. `under_way.UnderWay` puts these tensors
in place and removes them; `after_pass` decides when.
"""

from __future__ import annotations

import sys
from typing import Any, Callable, Protocol

import torch

__all__ = [
    "FRESH",
    "GradientOwner",
    "PendingGradient",
    "pending_gradient",
    "references_of",
    "storage_of",
    "uses_of",
]

# Reading these does not wait: one rank may print shapes without the others.
_METADATA: frozenset[Any] = frozenset(
    [getattr(torch.Tensor, name).__get__ for name in ("shape", "dtype", "device", "layout", "ndim", "requires_grad")]
    + [getattr(torch.Tensor, name).__get__ for name in ("is_sparse", "is_cuda", "is_cpu", "is_leaf")]
    + [getattr(torch.Tensor, name) for name in ("size", "dim", "numel", "element_size", "is_floating_point")]
)


class GradientOwner(Protocol):
    """The optimizer's side: it reduces the gradients. Both methods raise the errors of
    `DistributedOptimizer.synchronize`."""

    def submit(self, pending: PendingGradient) -> None:
        """Submits the gradient if this rank has not done so: it has not computed it."""

    def wait_for(self, pending: PendingGradient) -> None:
        """Returns when `pending.given` has been reduced."""


class PendingGradient(torch.Tensor):
    """A gradient that is being reduced. Every operation on it waits, called from Python or from C++.

    Attributes:
        given: the gradient itself, a plain tensor.
        number: the number by which `owner` knows the parameter.
        owner: the optimizer's side.
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
        # Calls from C++: autograd adds to a gradient, or an extension calls an operator.
        return _on_reduced(func, args, kwargs or {})


def pending_gradient(given: torch.Tensor, owner: GradientOwner, number: int) -> PendingGradient:
    """A new `PendingGradient` for a gradient, dense or sparse."""
    made: Any = torch.Tensor._make_subclass(PendingGradient, given)
    made.given, made.owner, made.number = given, owner, number
    return made  # type: ignore[no-any-return]


def _on_reduced(func: Any, args: Any, kwargs: Any) -> Any:
    # All are submitted before the first wait: the ranks may have left out different gradients.
    args, kwargs = _each(_submitted, args), _each(_submitted, kwargs)
    return func(*_each(_reduced, args), **_each(_reduced, kwargs))


def _submitted(pending: PendingGradient) -> PendingGradient:
    pending.owner.submit(pending)
    return pending


def _reduced(pending: PendingGradient) -> torch.Tensor:
    pending.owner.wait_for(pending)
    return pending.given


def _each(change: Callable[[PendingGradient], Any], value: Any) -> Any:
    """The value, with `change` applied to each pending gradient in it."""
    if type(value) is PendingGradient:
        return change(value)
    if type(value) in (list, tuple):
        return type(value)(_each(change, entry) for entry in value)
    if type(value) is dict:
        return {key: _each(change, entry) for key, entry in value.items()}
    return value


# Some builds of PyTorch lack it: then another view of the same memory is not noticed.
_storage_use_count: Callable[[int], int] = getattr(torch._C, "_storage_Use_Count", lambda cdata: 0)


def references_of(sent: tuple[Any, ...]) -> int:
    """The number of references to the first entry of a tuple, a tensor. For comparison with `FRESH`."""
    given = sent[0]
    return sys.getrefcount(given)


def storage_of(sent: tuple[Any, ...]) -> int:
    """What identifies the memory of that tensor; 0: it is sparse, and has several."""
    given = sent[0]
    return 0 if given.layout is not torch.strided else int(given.untyped_storage()._cdata)


def uses_of(storage: int) -> int:
    """The number of tensors in a memory, and what PyTorch counts besides. For comparison with `FRESH`."""
    return _storage_use_count(storage) if storage else 0


def _uses_of_fresh() -> tuple[int, int]:
    parameter = torch.zeros(1)
    parameter.grad = torch.zeros(1)
    sent = (parameter.grad, None)
    return references_of(sent), uses_of(storage_of(sent))


# Those of a gradient that nothing but a parameter and such a tuple holds. Measured, because it depends on the versions
# of Python and PyTorch.
FRESH = _uses_of_fresh()


def _count_as_plain() -> None:
    """Lets PyTorch's multi-tensor functions accept pending gradients: norms must be computed in the same order on a
    rank that holds some and on a rank that holds none."""
    try:
        from torch.utils._foreach_utils import _foreach_supported_types as supported
    except ImportError:
        return
    if PendingGradient not in supported:
        supported.append(PendingGradient)  # type: ignore[arg-type,unused-ignore]


_count_as_plain()
