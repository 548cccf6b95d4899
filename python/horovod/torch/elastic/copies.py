"""How a commit copies a PyTorch tensor.

On the CPU torch's own copy on write (`_lazy_clone`) keeps the values of the moment, and a thread copies them into the
commit's memory meanwhile: a change of the tensor before that, through `.data` too, gives it new memory. At once are
copied: small tensors; those that something else has in hand, another tensor on the same memory, or an array of NumPy's
or JAX's that could be written through past torch; those whose memory is not of the usual kind (shared with other
processes, NumPy's, mapped from a file); all of them where torch lacks what this needs; and those of a GPU, whose stream
has them copied before what is submitted later.
"""

from __future__ import annotations

import functools
import pickle
from typing import Any, Callable, Final, NamedTuple, Optional

import torch

from horovod._core.training.elastic import commit_file, snapshot

__all__ = ["held", "overwritten"]

_lazy_clone: Final[Optional[Callable[[torch.Tensor], torch.Tensor]]] = getattr(torch, "_lazy_clone", None)
# Smaller ones are copied in less time than it takes to begin.
_LAZY_BYTES: Final = 32 << 10
_storage_use_count: Final[Optional[Callable[[int], int]]] = getattr(torch._C, "_storage_Use_Count", None)
_tensor_use_count: Final[Optional[Callable[[torch.Tensor], int]]] = getattr(torch.Tensor, "_use_count", None)
_gradient_edge: Final[Optional[Callable[[torch.Tensor], Any]]] = getattr(
    torch.autograd.graph, "get_gradient_edge", None
)


class _Parameter(NamedTuple):
    """A type of its own: a parameter that the user keeps in a state must stay one."""

    parameter: torch.Tensor


def held(tensor: Any) -> Any:
    """A parameter as a `Snapshot` takes it, which is then a plain tensor; other values as they are. A view of it, even
    for a moment, would count as another user of its memory. A lazy parameter has no memory yet and is returned as it
    is; a buffer that was computed from parameters is kept without its graph."""
    if not isinstance(tensor, torch.Tensor) or torch.nn.parameter.is_lazy(tensor):
        return tensor
    if isinstance(tensor, torch.nn.Parameter):
        return _Parameter(tensor)
    return tensor if tensor.is_leaf else tensor.detach()


def overwritten(tensor: Any, kept: torch.Tensor) -> bool:
    """Gives a tensor the values of a commit, in place; False if there is none that is like it."""
    fits = type(tensor) is torch.Tensor and _alike(tensor, kept)
    if fits:
        with torch.no_grad():
            tensor.copy_(kept)
    return fits


def _copied(tensor: torch.Tensor, old: Any) -> Optional[tuple[torch.Tensor, Optional[snapshot.Later]]]:
    """See `snapshot.register`. What was computed with gradients is kept without its graph, which is of the step that
    made it, and which nobody could copy."""
    if not tensor.is_leaf:
        return _detached_copied(tensor.detach(), old)
    return None if tensor.requires_grad or not _plain(tensor) else _begun(tensor, old)


def _parameter_copied(value: _Parameter, old: Any) -> tuple[torch.Tensor, Optional[snapshot.Later]]:
    """See `snapshot.register`."""
    return _detached_copied(value.parameter, old)


def _shapeless_copied(tensor: torch.nn.parameter.UninitializedBuffer, old: Any) -> tuple[Any, None]:
    """See `snapshot.register`: torch itself copies only parameters that have no shape yet."""
    made: Any = torch.nn.parameter.UninitializedBuffer
    return made(device=tensor.device, dtype=tensor.dtype, persistent=getattr(tensor, "persistent", True)), None


def _detached_copied(tensor: torch.Tensor, old: Any) -> tuple[torch.Tensor, Optional[snapshot.Later]]:
    return _begun(tensor, old) if _plain(tensor) else (tensor.detach().clone(), None)


def _plain(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and not tensor.is_meta and not tensor.is_quantized


def _begun(tensor: torch.Tensor, old: Any) -> tuple[torch.Tensor, Optional[snapshot.Later]]:
    with torch.no_grad():
        fits = type(old) is torch.Tensor and _alike(old, tensor)
        kept = old if fits else torch.empty_like(tensor, requires_grad=False)
        source = _frozen(tensor)
        if source is None:
            kept.copy_(tensor, non_blocking=True)
            return kept, None
    return kept, functools.partial(_copy, kept, source)


def _alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.dtype is other.dtype and one.shape == other.shape and one.device == other.device


def _frozen(tensor: torch.Tensor) -> Optional[torch.Tensor]:
    """A tensor that shares the memory until one of both is changed; None if it must be copied now."""
    if _lazy_clone is None or not tensor.is_cpu or tensor.numel() * tensor.element_size() < _LAZY_BYTES:
        return None
    if not _alone(tensor):
        return None
    try:
        return _lazy_clone(tensor.detach())
    except RuntimeError:  # memory that it cannot take over
        return None


def _alone(tensor: torch.Tensor) -> bool:
    """Whether nobody else has a tensor or its memory in hand; False if that cannot be known.

    A DLPack view holds the tensor. So does what leads a gradient to a parameter, which lives as long as a graph does,
    and which no value is written through: it is there already if holding it holds the tensor no more often.
    """
    if _tensor_use_count is None or _gradient_edge is None or _memory_users(tensor) != _MEMORY_USERS_OF_ONE:
        return False
    users = _tensor_use_count(tensor)
    if users == _USERS_OF_ONE or not tensor.requires_grad or users != _USERS_OF_ONE + 1:
        return users == _USERS_OF_ONE
    with torch.enable_grad():
        held_too = _gradient_edge(tensor)
    alone = _tensor_use_count(tensor) == users
    del held_too
    return alone


def _memory_users(tensor: torch.Tensor) -> int:
    """How many have a tensor's memory in hand, this function among them; -1 if that cannot be known."""
    return -1 if _storage_use_count is None else _storage_use_count(tensor.untyped_storage()._cdata)


def _copy(kept: torch.Tensor, source: torch.Tensor) -> None:
    with torch.no_grad():
        kept.copy_(source)


def _reduced(tensor: torch.Tensor) -> Any:
    """See `commit_file.register`: the bytes stand by themselves."""
    if tensor.layout is not torch.strided or tensor.is_quantized:
        return NotImplemented
    if tensor.is_cuda:
        torch.cuda.synchronize(tensor.device)  # whichever stream has copied it
    flat: Any = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return _from_bytes, (pickle.PickleBuffer(flat), tensor.dtype, tuple(tensor.shape))


def _from_bytes(data: Any, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    """Part of the format of durable commits."""
    flat = torch.frombuffer(bytearray(data), dtype=dtype) if len(data) else torch.empty(0, dtype=dtype)
    return flat.reshape(shape)


# Those of a tensor which nobody else has; 0, which is never, where they cannot be known.
_MEMORY_USERS_OF_ONE: Final = max(_memory_users(torch.empty(1)), 0)
_USERS_OF_ONE: Final = 0 if _tensor_use_count is None else _tensor_use_count(torch.empty(1))

snapshot.register(torch.Tensor, _copied)
snapshot.register(_Parameter, _parameter_copied)
snapshot.register(torch.nn.parameter.UninitializedBuffer, _shapeless_copied)
commit_file.register(torch.Tensor, _reduced)
