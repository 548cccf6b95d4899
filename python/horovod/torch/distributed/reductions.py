"""What a process group combines: all_reduce, reduce and reduce_scatter, single and coalesced. Part of `group`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable

import torch

import horovod.torch as hvd
from horovod._core.errors import InvalidArgumentError
from horovod._core.life.engine_port import ALLREDUCE, REDUCESCATTER
from horovod.torch.collectives.operators import collectives
from horovod.torch.distributed.calls import GroupCalls
from horovod.torch.distributed.operands import (
    apart,
    cut,
    flat,
    forms_of,
    in_place,
    joined,
    real,
    reduce_op,
    require_sizes,
)
from horovod.torch.distributed.works import CallWork

__all__ = ["Reductions"]


class Reductions(GroupCalls):
    """See the module; the methods are those of torch.distributed.ProcessGroup."""

    def allreduce(self, tensors: Any, opts: Any = None, timeout: Any = None) -> CallWork:
        """Combines the ranks' tensors in place. Collective."""
        tensors = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        with self._refusing("all_reduce", ALLREDUCE, len(tensors)):
            op = reduce_op(_op_of(opts), tensors)
            given, finish = in_place(tensors)
        if len(given) == 1:
            (one,) = given

            def submit(name: str) -> int:
                return hvd.allreduce_async_(one, name=name, op=op, process_set=self._set)
        else:

            def submit(name: str) -> int:
                return hvd.grouped_allreduce_async_(given, name=name, op=op, process_set=self._set)

        return self._start("all_reduce", (op, forms_of(given)), submit, tensors, finish, _timeout_of(opts, timeout))

    def allreduce_coalesced(self, tensors: Sequence[torch.Tensor], opts: Any = None) -> CallWork:
        """As `allreduce`, for several tensors at once. Collective."""
        return self.allreduce(tensors, opts)

    def reduce(self, tensors: Sequence[torch.Tensor], opts: Any) -> CallWork:
        """Combines the ranks' tensors; only the root's is changed. Collective."""
        (tensor,), is_root = tensors, opts.rootRank == self.rank()
        with self._refusing("reduce", ALLREDUCE):
            op, sent = reduce_op(opts.reduceOp, tensors), flat(tensor)

        def submit(name: str) -> int:
            return hvd.allreduce_async(sent, name=name, op=op, process_set=self._set)

        def finish(reduced: torch.Tensor) -> None:
            if is_root:
                cut("reduce", reduced, [tensor])

        call = (op, opts.rootRank, forms_of([sent]))
        return self._start("reduce", call, submit, tensors, finish, opts.timeout)

    def reduce_scatter(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[Sequence[torch.Tensor]], opts: Any = None
    ) -> CallWork:
        """Combines the ranks' lists and leaves each rank its own entry. Collective."""
        (output,), (parts,) = outputs, inputs
        sizes = [real(part).numel() for part in parts]
        if len(set(sizes)) == 1:
            return self._scatter([output], [joined(parts)], opts, outputs)
        with self._refusing("reduce_scatter", ALLREDUCE):
            sent, op = joined(parts), reduce_op(_op_of(opts), parts)
        begin, own = sum(sizes[: self.rank()]), sizes[self.rank()]

        def submit(name: str) -> int:
            return hvd.allreduce_async(sent, name=name, op=op, process_set=self._set)

        def finish(reduced: torch.Tensor) -> None:
            cut("reduce_scatter", reduced[begin : begin + own], [output])

        return self._start("reduce_scatter", (op, forms_of([sent])), submit, outputs, finish, _timeout_of(opts))

    def reduce_scatter_single(self, output: torch.Tensor, given: torch.Tensor, opts: Any = None) -> CallWork:
        """Combines the ranks' tensors and leaves each rank an equal part of them. Collective."""
        with self._refusing("reduce_scatter", REDUCESCATTER):
            op = reduce_op(_op_of(opts), [output])
            sent, into, copy_back = apart("reduce_scatter", given, output)
            rows = self._rows(sent)
        if op not in (hvd.Sum, hvd.Average):
            return self._scatter([output], [sent], opts, [output])

        def submit(name: str) -> int:
            return collectives.begin_into(REDUCESCATTER, rows, into, name, self._set, op)

        def finish(come: int) -> None:
            require_sizes("reduce_scatter", [come // into.element_size()], [into.numel()])
            if copy_back is not None:
                copy_back(come)

        return self._start("reduce_scatter", (op, forms_of([rows])), submit, [output], finish, _timeout_of(opts))

    def reduce_scatter_single_coalesced(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> CallWork:
        """As `reduce_scatter_single`, for several tensors at once. Collective."""
        return self._scatter(outputs, [flat(given) for given in inputs], opts, outputs)

    # Their names in other versions of torch.
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def _scatter(
        self, outputs: Sequence[torch.Tensor], sent: Sequence[torch.Tensor], opts: Any, result: Any
    ) -> CallWork:
        """Equal parts of tensors of one dimension."""
        with self._refusing("reduce_scatter", REDUCESCATTER, len(sent)):
            op, rows = reduce_op(_op_of(opts), outputs), [self._rows(elements) for elements in sent]
        own = self.rank()
        scatters = op in (hvd.Sum, hvd.Average)  # the core combines by others for all ranks alone

        def submit(name: str) -> int:
            start: Callable[..., int]
            if len(rows) == 1:
                start = hvd.reducescatter_async if scatters else hvd.allreduce_async
                return start(rows[0], name=name, op=op, process_set=self._set)
            start = hvd.grouped_reducescatter_async if scatters else hvd.grouped_allreduce_async
            return start(rows, name=name, op=op, process_set=self._set)

        def finish(reduced: Any) -> None:
            for output, block in zip(outputs, [reduced] if len(rows) == 1 else reduced):
                cut("reduce_scatter", (block if scatters else block[own]).reshape(-1), [output])

        return self._start("reduce_scatter", (op, forms_of(rows)), submit, result, finish, _timeout_of(opts))

    def _rows(self, elements: torch.Tensor) -> torch.Tensor:
        """A row for each rank."""
        own, rest = divmod(elements.numel(), self.size())
        if rest:
            raise InvalidArgumentError(
                f"reduce_scatter: {elements.numel()} elements cannot be divided among {self.size()} ranks. Pad the "
                "input."
            )
        return elements.view(self.size(), own)


def _op_of(opts: Any) -> Any:
    """Of options, or itself; torch has calls of both kinds."""
    return torch.distributed.ReduceOp.SUM if opts is None else getattr(opts, "reduceOp", opts)


def _timeout_of(opts: Any, timeout: Any = None) -> Any:
    return timeout or getattr(opts, "timeout", None)
