"""One collective on a list of arrays: what it does, apart from which way it goes (`dispatch`) and from its gradient
(`autograd`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Union

import jax
import numpy as np

from horovod._core.errors import InvalidArgumentError, UnsupportedError
from horovod._core.life import session
from horovod._core.life.engine_port import ALLGATHER, ALLREDUCE, ALLTOALL, BROADCAST, REDUCESCATTER
from horovod._core.life.process_sets import ProcessSet, global_process_set
from horovod._core.operations import checks, reduce_ops
from horovod._core.operations.collectives import Collectives
from horovod._core.operations.described_call import DescribedOperation, TensorForm
from horovod._core.operations.movement_calls import checked_root
from horovod._core.operations.reduce_ops import ReduceOp, Sum
from horovod._core.operations.submission import called, member_set
from horovod._core.tensors.compression import NoneCompressor
from horovod._core.training.groups import assign_groups
from horovod.numpy.adapter import adapter

__all__ = ["ELEMENTWISE", "Operation", "collectives"]

collectives: Final = Collectives(adapter)  # on NumPy's arrays
ELEMENTWISE: Final = (ALLREDUCE, BROADCAST)  # the others work on rows


@dataclass(frozen=True)
class Operation:
    """What the members do with a list of arrays.

    Args:
        op_type: ALLREDUCE, ... (`horovod._core.life.engine_port`).
        names: of the arrays.
        process_set: the ranks that take part.
        op, factors, root: where the operation has them.
        groups: into how many groups the arrays are divided; each is negotiated as one unit.
        rows: how many the results of an allgather have; (): as many for each member as this rank gives.
    """

    op_type: int
    names: tuple[str, ...]
    process_set: ProcessSet = global_process_set
    op: ReduceOp = Sum
    factors: tuple[float, float] = (1.0, 1.0)
    root: int = 0
    groups: int = 1
    rows: tuple[int, ...] = ()

    @property
    def what(self) -> str:
        """As messages call it."""
        more = f"' and {len(self.names) - 1} more" if len(self.names) > 1 else ""
        return called(self.op_type, self.names[0] + more).removesuffix("'" if more else "")

    def backward(self, indices: Sequence[int], **changes: Any) -> Operation:
        """Another operation on the cotangents of some of the arrays."""
        names = tuple(f"{self.names[index]}.gradient" for index in indices)
        return dataclasses.replace(self, names=names, **changes)

    def members(self) -> list[int]:
        """The ranks that take part, of which this one must be one."""
        member_set(session.require(), self.process_set)
        return list(self.process_set.ranks or ())

    def check(self, arrays: Sequence[Any]) -> None:
        """Refuses what a call in a compiled function would refuse only when it runs.

        Raises:
            InvalidArgumentError, UnsupportedError: as the operation on NumPy arrays does.
        """
        members = self.members()
        checks.require_dtypes(self.what, adapter, arrays)
        if self.op_type in (ALLREDUCE, REDUCESCATTER):
            reduce_ops.check_members(self.op, self.process_set.process_set_id or 0, len(members))
            checks.require_reducible(self.op, adapter, arrays, self.factors)
        if self.op_type == REDUCESCATTER:
            reduce_ops.check_linear(self.what, self.op)
            self._require_a_row_each(arrays, len(members))
        if self.op_type == BROADCAST:
            checked_root(self.what, self.root, self.process_set)
        if self.op_type not in ELEMENTWISE:
            checks.require_rows(self.what, [array.ndim for array in arrays])
        if self.op_type == ALLTOALL:
            for array in arrays:
                if array.shape[0] % len(members):
                    raise InvalidArgumentError(
                        f"{self.what}: {array.shape[0]} rows cannot be split equally among {len(members)} ranks. Give "
                        "splits, outside of compiled functions, or pad the array."
                    )

    def _require_a_row_each(self, arrays: Sequence[Any], size: int) -> None:
        # XLA leaves a call without results out; here some ranks would have none.
        for array in arrays:
            if array.ndim and array.shape[0] < size:
                raise UnsupportedError(
                    f"{self.what}: {array.shape[0]} rows leave some of {size} ranks without one, which compiled "
                    "functions cannot have. Call it outside of them, or pad the array."
                )

    def result_shape(self, index: int, array: Any) -> tuple[int, ...]:
        """Of the result for the array at this index."""
        shape: tuple[int, ...] = array.shape
        if self.op_type == ALLGATHER:
            return (self.rows[index] if self.rows else shape[0] * len(self.members()), *shape[1:])
        if self.op_type == REDUCESCATTER:
            return (checks.own_rows(shape[0], self.members(), session.require().rank), *shape[1:])
        return shape

    def described(self, arrays: Sequence[Any], results: Sequence[Any]) -> list[DescribedOperation]:
        """For the core, a submission per group."""
        number = self.process_set.process_set_id or 0
        return [
            DescribedOperation(
                self.op_type,
                [_form(self.names[i], arrays[i], results[i]) for i in group],
                number,
                int(self.op),
                self.factors,
                self.root,
            )
            for group in self._groups()
        ]

    def on_the_host(self, arrays: Sequence[np.ndarray[Any, Any]]) -> list[Any]:
        """Runs it on NumPy arrays, which may have different numbers of rows. Collective."""
        results: list[Any] = []
        for group in self._groups():
            results += self._one_group([arrays[i] for i in group], tuple(self.names[i] for i in group))
        return results

    def _one_group(self, arrays: list[Any], names: Any) -> Iterable[Any]:
        one = collectives
        if self.op_type == ALLREDUCE:
            arguments: Any = (None, names, NoneCompressor, self.op, *self.factors, self.process_set)
            return one.grouped_allreduce(arrays, *arguments)
        if self.op_type == ALLGATHER:
            return one.grouped_allgather(arrays, names, self.process_set)
        if self.op_type == REDUCESCATTER:
            return one.grouped_reducescatter(arrays, names, NoneCompressor, self.op, self.process_set, *self.factors)
        if self.op_type == BROADCAST:
            handles = [one.broadcast_async(a, self.root, n, self.process_set) for a, n in zip(arrays, names)]
            return [one.synchronize(handle) for handle in handles]
        handles = [one.alltoall_async(array, None, name, self.process_set) for array, name in zip(arrays, names)]
        return [one.synchronize(handle)[0] for handle in handles]

    def _groups(self) -> list[Any]:
        return assign_groups(range(len(self.names)), self.groups)


def _form(name: str, array: Any, result: Union[Any, jax.ShapeDtypeStruct]) -> TensorForm:
    return TensorForm(name, adapter.dtype(array), array.shape, result.size * result.dtype.itemsize)
