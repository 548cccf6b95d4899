"""Gradients that live in memory shared by the ranks of a host, so that their allreduce copies nothing.

`GradientHome` belongs to one parameter. Right after autograd has made a gradient, while it is in the cache, it is
copied into the home and the parameter's `grad` is set to a view of that; further accumulation happens in place. A home
that the user still holds (`g = p.grad`) is never overwritten: a new one is made. A gradient that the user holds stays
where it is. Used by `reducer`; switched by HOROVOD_RESIDENT_GRADIENTS.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Any, Callable, Optional

import torch

from horovod._core.errors import HorovodError
from horovod._core.life import session
from horovod._core.tensors.adapter import Lent, ResultBlock
from horovod.torch.adapter import adapter
from horovod.torch.gradients.layout import dense_view

__all__ = ["GradientHome", "resident_possible"]

# Smaller gradients travel with others through slots that stay in the cache; a home would not make them faster.
_MIN_BYTES = 64 << 10
# References to a home's tensor that are our own: the attribute, and the argument of getrefcount.
_OWN_REFERENCES = 2

_log = logging.getLogger("horovod.torch")
# Absent in some builds; then a storage that only another view holds is not noticed, and homes are not used.
_storage_use_count: Optional[Callable[[int], int]] = getattr(torch._C, "_storage_Use_Count", None)
# Absent in older torch: whether a tensor is the gradient of two parameters is then not noticed.
_tensor_use_count: Callable[[Any], int] = getattr(torch.Tensor, "_use_count", lambda tensor: 0)


def resident_possible() -> bool:
    """True if all ranks of the job share memory, so that gradients may live there."""
    current = session.current
    return (
        current is not None
        and _storage_use_count is not None
        and current.size > 1
        and current.local_size == current.size
        and hasattr(current.engine, "shared_alloc")
    )


class GradientHome:
    """Shared memory for one parameter's gradient.

    Args:
        parameter: on the CPU, dense.

    Attributes:
        view: the gradient as the user sees it, with the parameter's strides; None while there is none.
        address: of its memory. A view that is elsewhere has been given other memory (`p.grad.data = ...`, as
            `model.half()` does) and is a gradient like any other.
        tensors: the same elements twice more, never seen by the user: with the view's strides, and contiguous. Empty
            while there is no view.
        uses: how many tensors of our own share the memory.
    """

    __slots__ = ("_cdata", "_owner", "_refused", "address", "tensors", "uses", "view")

    def __init__(self) -> None:
        self.view: Optional[torch.Tensor] = None
        self.tensors: tuple[torch.Tensor, ...] = ()
        self.address = 0
        self._owner: Optional[session.Session] = None
        self._cdata = 0
        self.uses = 0
        self._refused = False

    def take_in(self, parameter: torch.Tensor) -> None:
        """Moves a fresh gradient here: copies it and sets `parameter.grad`. Does nothing if the gradient cannot live
        here, or is held by somebody else.

        Args:
            parameter: has a gradient that is not the view of this home.
        """
        if _holders(parameter) != _HOLDERS_OF_FRESH:
            return
        grad: Any = parameter.grad
        if grad.dtype is not parameter.dtype:
            return
        view = self.view
        if view is None or self._owner is not session.current or self._held_by_others() or self._outgrown(parameter):
            view = None  # lets go of the old memory before the new is asked for
            if not self._build(parameter):
                return
            view = self.view
        if view is None or view.shape != grad.shape:
            return
        view.copy_(grad)
        parameter.grad = view

    def _held_by_others(self) -> bool:
        # The caller's local variable is one reference more.
        counted: Any = _storage_use_count
        return sys.getrefcount(self.view) > _OWN_REFERENCES + 1 or counted(self._cdata) > self.uses

    def _outgrown(self, parameter: torch.Tensor) -> bool:
        view: Any = self.view
        return (
            view.data_ptr() != self.address
            or view.dtype is not parameter.dtype
            or bool(view.stride() != parameter.stride())
        )

    def _build(self, parameter: torch.Tensor) -> bool:
        self.view, self.tensors = None, ()
        owner = session.current
        if self._refused or owner is None or not resident_possible():
            return False
        shape = dense_view(parameter)
        if shape is None:
            self._refused = True
            return False
        try:
            block = _allocate(owner, shape)
        except HorovodError as error:
            _log.info("Gradients of %d bytes and more stay in private memory: %s", shape.nbytes, error)
            self._refused = True
            return False
        flat = adapter.wrap(block, shape)
        view = torch.as_strided(flat, parameter.shape, parameter.stride())
        counted: Any = _storage_use_count
        self.view, self.tensors, self._owner = view, (view.detach(), flat), owner
        self.address = view.data_ptr()
        self._cdata = view.untyped_storage()._cdata
        self.uses = counted(self._cdata)
        return True


def wants_home(parameter: torch.Tensor) -> bool:
    """True if a parameter's gradient is worth a home."""
    return parameter.is_cpu and parameter.layout is torch.strided and parameter.nbytes >= _MIN_BYTES


def _holders(parameter: torch.Tensor) -> tuple[int, ...]:
    """The numbers of references to a parameter's gradient: to the Python object, its storage, and the tensor. Empty if
    it is not a plain tensor."""
    grad: Any = parameter.grad
    if type(grad) is not torch.Tensor or grad.layout is not torch.strided or grad.requires_grad:
        return ()
    counted: Any = _storage_use_count
    return sys.getrefcount(grad), counted(grad.untyped_storage()._cdata), _tensor_use_count(grad)


def _holders_of_fresh() -> tuple[int, ...]:
    # Measured, because it depends on the versions of Python and torch.
    if _storage_use_count is None:
        return ()
    parameter = torch.zeros(1, device="cpu")
    parameter.grad = torch.zeros(1, device="cpu")
    return _holders(parameter)


_HOLDERS_OF_FRESH = _holders_of_fresh()


def _allocate(owner: session.Session, like: torch.Tensor) -> ResultBlock:
    """Shared memory for a tensor; given back when its last view dies, also after shutdown, but never by a forked
    child."""
    engine: Any = owner.engine
    process = os.getpid()

    def free(address: int) -> None:
        if os.getpid() == process:
            engine.shared_free(address)

    address = engine.shared_alloc(like.nbytes)
    return ResultBlock(address, like.nbytes, adapter.dtype(like), tuple(like.shape), Lent(address, free))
