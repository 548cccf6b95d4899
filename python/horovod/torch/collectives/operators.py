"""The collectives as registered torch operators (`torch.ops.horovod.*`), so that torch.compile keeps them in its
graphs.

Each operator has a schema, an implementation (the core's, on real tensors), a shape rule for tracing, and a gradient
(`autograd`). `ops` calls them wherever a gradient is needed or a tracer is at work; plain calls go to the core
directly. Names, factors and process sets are constants of a graph. Blocking operators of one graph run in the order in
which the compiler put them, which is the same on ranks that compile the same program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable, Final, Optional

import torch

from horovod._core.errors import InvalidArgumentError
from horovod._core.life import session
from horovod._core.life.process_sets import ProcessSet, global_process_set
from horovod._core.operations import checks
from horovod._core.operations.collectives import Collectives
from horovod.torch.adapter import adapter

# torch.library has no annotations.
_new_library: Any = torch.library.Library

__all__ = ["collectives", "own_rows", "process_set_of"]

collectives: Final = Collectives(adapter)

_library: Final[Any] = _new_library("horovod", "DEF")
_REDUCE: Final = "str? name, int? op, bool? average, float prescale_factor, float postscale_factor, int process_set"
_sets: dict[int, tuple[object, ProcessSet]] = {}


def process_set_of(number: int) -> ProcessSet:
    """The registered process set with this id.

    Raises:
        NotInitializedError: `init` has not been called.
        InvalidArgumentError: there is no such set.
    """
    if number == 0:
        return global_process_set
    current = session.require()
    known = _sets.get(number)
    if known is not None and known[0] is session.stamp:
        return known[1]
    process_set = ProcessSet(current.engine.process_set_ranks(number))
    process_set.process_set_id = number
    _sets[number] = (session.stamp, process_set)
    return process_set


def _members(number: int) -> list[int]:
    ranks = process_set_of(number).ranks
    return list(range(session.require().size)) if ranks is None else ranks


def own_rows(rows: Any, number: int) -> Any:
    """Rows that this rank keeps of a reducescatter of `rows` rows over set `number`."""
    return checks.own_rows(rows, _members(number), session.require().rank)


def _define(schema: str, run: Callable[..., Any], shape: Callable[..., Any]) -> None:
    name = schema.partition("(")[0]
    _library.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    _library.impl(name, run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"horovod::{name}", shape, lib=_library)


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if adapter.is_contiguous(tensor) else adapter.contiguous(tensor)


# ---- allreduce


def _allreduce(
    tensor: torch.Tensor,
    name: Optional[str],
    op: Optional[int],
    average: Optional[bool],
    pre: float,
    post: float,
    process_set: int,
) -> Any:
    ranks = process_set_of(process_set)
    return collectives.allreduce(
        _dense(tensor), average, name, op=op, prescale_factor=pre, postscale_factor=post, process_set=ranks
    )


def _allreduce_in_place(
    tensor: torch.Tensor,
    name: Optional[str],
    op: Optional[int],
    average: Optional[bool],
    pre: float,
    post: float,
    process_set: int,
) -> None:
    ranks = process_set_of(process_set)
    collectives.allreduce_(tensor, average, name, op=op, prescale_factor=pre, postscale_factor=post, process_set=ranks)


def _grouped_allreduce(
    tensors: Sequence[torch.Tensor],
    name: Optional[str],
    op: Optional[int],
    average: Optional[bool],
    pre: float,
    post: float,
    process_set: int,
) -> Any:
    ranks = process_set_of(process_set)
    dense = [_dense(tensor) for tensor in tensors]
    return collectives.grouped_allreduce(
        dense, average, name, op=op, prescale_factor=pre, postscale_factor=post, process_set=ranks
    )


def _grouped_allreduce_in_place(
    tensors: Sequence[torch.Tensor],
    name: Optional[str],
    op: Optional[int],
    average: Optional[bool],
    pre: float,
    post: float,
    process_set: int,
) -> None:
    ranks = process_set_of(process_set)
    collectives.grouped_allreduce_(
        list(tensors), average, name, op=op, prescale_factor=pre, postscale_factor=post, process_set=ranks
    )


def _fresh(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)


_define(f"allreduce(Tensor tensor, {_REDUCE}) -> Tensor", _allreduce, lambda tensor, *_: _fresh(tensor))
_define(f"allreduce_(Tensor(a!) tensor, {_REDUCE}) -> ()", _allreduce_in_place, lambda *_: None)
_define(
    f"grouped_allreduce(Tensor[] tensors, {_REDUCE}) -> Tensor[]",
    _grouped_allreduce,
    lambda tensors, *_: [_fresh(tensor) for tensor in tensors],
)
_define(f"grouped_allreduce_(Tensor(a!)[] tensors, {_REDUCE}) -> ()", _grouped_allreduce_in_place, lambda *_: None)


# ---- allgather, broadcast, alltoall


def _checked_rows(what: str, result: torch.Tensor, rows: int) -> torch.Tensor:
    """A tracer may have been promised a number of rows (-1: it was not)."""
    if rows >= 0 and result.size(0) != rows:
        raise InvalidArgumentError(
            f"{what} in a compiled function: the ranks' first dimensions differ ({result.size(0)} rows in all, "
            f"{rows} expected from this "
            "rank's alone). Set torch._dynamo.config.capture_dynamic_output_shape_ops = True, or call it outside the "
            "compiled function."
        )
    return result


def _some_rows(tensor: torch.Tensor, rows: Any) -> torch.Tensor:
    # A symbolic number is never negative: -1 is always the plain constant.
    if isinstance(rows, int) and rows < 0:
        rows = torch.library.get_ctx().new_dynamic_size()
    return torch.empty((rows, *tensor.shape[1:]), dtype=tensor.dtype, device=tensor.device)


def _allgather(tensor: torch.Tensor, name: Optional[str], process_set: int, rows: int) -> torch.Tensor:
    result = collectives.allgather(_dense(tensor), name, process_set_of(process_set))
    return _checked_rows("allgather", result, rows)


def _grouped_allgather(
    tensors: Sequence[torch.Tensor], name: Optional[str], process_set: int, rows: Sequence[int]
) -> list[torch.Tensor]:
    dense = [_dense(tensor) for tensor in tensors]
    results = collectives.grouped_allgather(dense, name, process_set_of(process_set))
    return [_checked_rows("grouped_allgather", result, n) for result, n in zip(results, rows)]


def _broadcast(tensor: torch.Tensor, root_rank: int, name: Optional[str], process_set: int) -> Any:
    return collectives.broadcast(_dense(tensor), root_rank, name, process_set_of(process_set))


def _broadcast_in_place(tensor: torch.Tensor, root_rank: int, name: Optional[str], process_set: int) -> None:
    collectives.broadcast_(tensor, root_rank, name, process_set_of(process_set))


def _alltoall(
    tensor: torch.Tensor, splits: Optional[torch.Tensor], name: Optional[str], process_set: int, rows: int
) -> tuple[torch.Tensor, torch.Tensor]:
    handle = collectives.alltoall_async(_dense(tensor), splits, name, process_set_of(process_set))
    received, received_splits = collectives.synchronize(handle)
    return _checked_rows("alltoall", received, rows), received_splits


def _alltoall_shape(
    tensor: torch.Tensor, splits: Optional[torch.Tensor], name: Optional[str], process_set: int, rows: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    received_splits = torch.empty(len(_members(process_set)), dtype=torch.int32, device=tensor.device)
    return _some_rows(tensor, rows), received_splits


_define(
    "allgather(Tensor tensor, str? name, int process_set, SymInt rows) -> Tensor",
    _allgather,
    lambda t, n, s, rows: _some_rows(t, rows),
)
_define(
    "grouped_allgather(Tensor[] tensors, str? name, int process_set, SymInt[] rows) -> Tensor[]",
    _grouped_allgather,
    lambda tensors, n, s, rows: [_some_rows(tensor, count) for tensor, count in zip(tensors, rows)],
)
_define(
    "broadcast(Tensor tensor, int root_rank, str? name, int process_set) -> Tensor",
    _broadcast,
    lambda tensor, *_: _fresh(tensor),
)
_define(
    "broadcast_(Tensor(a!) tensor, int root_rank, str? name, int process_set) -> ()",
    _broadcast_in_place,
    lambda *_: None,
)
_define(
    "alltoall(Tensor tensor, Tensor? splits, str? name, int process_set, SymInt rows) -> (Tensor, Tensor)",
    _alltoall,
    _alltoall_shape,
)


# ---- reducescatter


def _reducescatter(
    tensor: torch.Tensor, name: Optional[str], op: int, pre: float, post: float, process_set: int
) -> Any:
    ranks = process_set_of(process_set)
    return collectives.reducescatter(
        _dense(tensor), name, op=op, process_set=ranks, prescale_factor=pre, postscale_factor=post
    )


def _grouped_reducescatter(
    tensors: Sequence[torch.Tensor], name: Optional[str], op: int, pre: float, post: float, process_set: int
) -> Any:
    ranks = process_set_of(process_set)
    dense = [_dense(tensor) for tensor in tensors]
    return collectives.grouped_reducescatter(
        dense, name, op=op, process_set=ranks, prescale_factor=pre, postscale_factor=post
    )


def _block(tensor: torch.Tensor, process_set: int) -> torch.Tensor:
    return _some_rows(tensor, own_rows(tensor.shape[0], process_set))


_SCATTER: Final = "str? name, int op, float prescale_factor, float postscale_factor, int process_set"
_define(
    f"reducescatter(Tensor tensor, {_SCATTER}) -> Tensor", _reducescatter, lambda t, n, o, pre, post, s: _block(t, s)
)
_define(
    f"grouped_reducescatter(Tensor[] tensors, {_SCATTER}) -> Tensor[]",
    _grouped_reducescatter,
    lambda tensors, n, o, pre, post, s: [_block(tensor, s) for tensor in tensors],
)
