"""What the core is given for the tensors of a call, and how results come back into them.

The core takes contiguous tensors of real numbers; a process group takes any. Used by `reductions` and `movements`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Callable, Optional

import torch
import torch.distributed as dist

from horovod._core.errors import InvalidArgumentError, UnsupportedError
from horovod._core.operations import reduce_ops
from horovod.torch.adapter import adapter

__all__ = [
    "apart",
    "cut",
    "flat",
    "forms_of",
    "in_place",
    "joined",
    "real",
    "reduce_op",
    "require_main_memory",
    "require_sizes",
    "sizes_of",
    "split_sizes",
]

_OPS = (
    (dist.ReduceOp.SUM, reduce_ops.Sum),
    (dist.ReduceOp.AVG, reduce_ops.Average),
    (dist.ReduceOp.MIN, reduce_ops.Min),
    (dist.ReduceOp.MAX, reduce_ops.Max),
    (dist.ReduceOp.PRODUCT, reduce_ops.Product),
)


def reduce_op(op: Any, tensors: Sequence[torch.Tensor]) -> reduce_ops.ReduceOp:
    """The core's operation for one of torch.distributed.

    Raises:
        UnsupportedError: there is none, or none for complex numbers, whose parts are combined apart.
    """
    for theirs, ours in _OPS:
        if op == theirs:
            if ours not in (reduce_ops.Sum, reduce_ops.Average) and any(tensor.is_complex() for tensor in tensors):
                raise UnsupportedError(f"Complex tensors are combined by SUM and AVG alone. Received: {op}.")
            return ours
    raise UnsupportedError(
        f"The backend 'horovod' combines by SUM, AVG, MIN, MAX and PRODUCT. Received: {op}. For BAND, BOR and BXOR "
        "gather the tensors with all_gather and combine them; for PREMUL_SUM multiply them before the call."
    )


def require_main_memory(device: torch.device) -> None:
    """Raises:
    UnsupportedError: the tensors of this device are elsewhere.
    """
    if device.type != "cpu":
        raise UnsupportedError(
            f"A process group of the backend 'horovod' moves tensors in main memory. Received: {device}. Make a group "
            "of the backend 'nccl' for those."
        )


def real(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a view of its memory as real numbers, with a dimension more."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def flat(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's elements in one dimension; a copy where they do not lie one after the other."""
    one = real(tensor)
    one = one.detach() if adapter.is_contiguous(one) else adapter.contiguous(one)
    return one if one.dim() == 1 else one.reshape(-1)


def forms_of(tensors: Sequence[torch.Tensor]) -> Hashable:
    """Dtypes and shapes, for `CallNames`."""
    return tuple((tensor.dtype, tuple(tensor.shape)) for tensor in tensors)


def sizes_of(tensors: Sequence[torch.Tensor]) -> Hashable:
    """As `forms_of`, where ranks may give a tensor other shapes."""
    return tuple((tensor.dtype, tensor.numel()) for tensor in tensors)


def in_place(tensors: Sequence[torch.Tensor]) -> tuple[list[torch.Tensor], Optional[Callable[[Any], None]]]:
    """Tensors that the core may write to instead, and what copies them back; None: they are the same memory."""
    views = [real(tensor.detach()) for tensor in tensors]
    given = [view if adapter.is_contiguous(view) else adapter.contiguous(view) for view in views]
    is_same = all(view is one for view, one in zip(views, given))
    if is_same and not any(tensor.is_conj() for tensor in tensors):
        return given, None

    def finish(_: Any) -> None:
        for tensor, one in zip(tensors, given):
            _fill(tensor, one)

    return given, finish


def apart(
    what: str, given: torch.Tensor, output: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, Optional[Callable[[Any], None]]]:
    """What the core reads, in one dimension; what it writes, which shares no memory with that; and what copies this
    into the output; None: it is the same memory.

    Raises:
        InvalidArgumentError: they have different dtypes.
        UnsupportedError: one is not in main memory.
    """
    for tensor in (given, output):
        require_main_memory(tensor.device)
    sent, ((into,), finish) = flat(given), in_place([output])
    if sent.dtype != into.dtype:
        raise InvalidArgumentError(f"{what}: the tensors have one dtype. Received: {given.dtype} and {output.dtype}.")
    begin, into_begin = sent.data_ptr(), into.data_ptr()
    if begin < into_begin + into.nbytes and into_begin < begin + sent.nbytes:
        sent = sent.clone()
    return sent, into, finish


def joined(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """The elements of all tensors, one after the other, in one dimension."""
    parts = [flat(tensor) for tensor in tensors]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def cut(what: str, received: torch.Tensor, outputs: Sequence[torch.Tensor]) -> None:
    """Copies elements in one dimension into tensors, one after the other.

    Raises:
        InvalidArgumentError: they are more or fewer than the tensors hold.
    """
    sizes = [real(output).numel() for output in outputs]
    if any(real(output).dtype != received.dtype for output in outputs):
        raise InvalidArgumentError(f"{what}: {received.dtype} has come; the tensors for it have another dtype.")
    if received.numel() != sum(sizes):
        raise InvalidArgumentError(
            f"{what}: {received.numel()} elements have come, the tensors for them hold {sum(sizes)} ({sizes}). All "
            "ranks must pass tensors of the sizes that the others expect."
        )
    for output, part in zip(outputs, torch.split(received, sizes)):
        _fill(output, part.view(*output.shape, 2) if output.is_complex() else part.view(output.shape))


def _fill(tensor: torch.Tensor, numbers: torch.Tensor) -> None:
    """Copies real numbers into a tensor, in whatever thread and mode: `detach` also leaves inference mode."""
    tensor.detach().copy_(torch.view_as_complex(numbers) if tensor.is_complex() else numbers)


def require_sizes(what: str, come: Sequence[int], expected: Sequence[int]) -> None:
    """Refuses parts of other sizes than the tensors for them, which may hold as much in all.

    Raises:
        InvalidArgumentError: they differ.
    """
    if list(come) != list(expected):
        raise InvalidArgumentError(
            f"{what}: parts of {list(come)} elements, where the tensors for them hold {list(expected)}. All ranks must "
            "pass tensors of the sizes that the others expect."
        )


def split_sizes(what: str, rows: int, splits: Sequence[int], size: int) -> list[int]:
    """Rows for each rank: those given, or equal parts.

    Raises:
        InvalidArgumentError: they do not fit.
    """
    if not splits:
        if rows % size:
            raise InvalidArgumentError(f"{what}: {rows} rows cannot be split equally among {size} ranks; give splits.")
        return [rows // size] * size
    if len(splits) != size or sum(splits) != rows:
        raise InvalidArgumentError(
            f"{what}: splits must have one entry for each of the {size} ranks and add up to the {rows} rows. Received: "
            f"{list(splits)}."
        )
    return list(splits)
