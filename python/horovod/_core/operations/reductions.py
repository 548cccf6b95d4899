"""Operations that combine the ranks' values: allreduce and reducescatter, single and grouped.

Part of `collectives.Collectives`. The hot path is the lane, asked first; behind it is the plain way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

from horovod._core.life import handles
from horovod._core.life.engine_port import ALLREDUCE, REDUCESCATTER
from horovod._core.life.process_sets import ProcessSet, global_process_set
from horovod._core.operations.reduce_ops import Average
from horovod._core.operations.reduction_calls import ReductionCalls
from horovod._core.tensors.compression import Compressor, NoneCompressor, sends_copies


class Reductions(ReductionCalls):
    """Allreduce, reducescatter and their variants."""

    def allreduce(
        self,
        tensor: Any,
        average: Optional[bool] = None,
        name: Optional[str] = None,
        compression: Compressor = NoneCompressor,
        op: Optional[int] = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> Any:
        """Combines the members' tensors, element by element, into a new tensor.

        Collective.

        Args:
            tensor: any shape and dtype, contiguous; shape and dtype equal on all members.
            average: deprecated; use `op`.
            name: identity of the operation, equal on all members; None: counted.
            compression: one of `Compression.none`, `fp16`, `bf16`.
            op: one of Average (default), Sum, Adasum, Min, Max, Product.
            prescale_factor: multiplies each tensor before the reduction.
            postscale_factor: multiplies the result.
            process_set: the ranks that take part.

        Returns:
            The result, of the same shape and dtype. Average of integers is truncated toward zero.

        Raises:
            InvalidArgumentError: a bad argument on this rank (the other members get a MismatchError).
            UnsupportedError: Adasum on a process set, or with a number of ranks that is no power of two.
            MismatchError: the members disagree on dtype, shape, op or factors.
            HorovodInternalError: a rank died, or the engine is shutting down.
        """
        (tensor,) = self._tensors(ALLREDUCE, [tensor], compression, name, process_set)
        sent, context = compression.compress(tensor)
        key = (name, average, op, prescale_factor, postscale_factor, process_set)
        reduced = self._lane_alike(key, sent) if sent is tensor else None
        if reduced is None:
            in_place = sent is not tensor and sends_copies(compression)
            reduced = handles.finish(self._start_allreduce([sent], in_place, key, waits=True))
        return compression.decompress(reduced, context)

    def allreduce_async(
        self,
        tensor: Any,
        average: Optional[bool] = None,
        name: Optional[str] = None,
        op: Optional[int] = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> int:
        """Starts `allreduce`. Collective. The tensor must not be changed before the end.

        Returns:
            A handle for `poll` and `synchronize`.
        """
        return handles.add(
            self._start_allreduce([tensor], False, (name, average, op, prescale_factor, postscale_factor, process_set))
        )

    def allreduce_(
        self,
        tensor: Any,
        average: Optional[bool] = None,
        name: Optional[str] = None,
        op: Optional[int] = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> Any:
        """As `allreduce`, in place. Collective.

        Returns:
            The tensor given.
        """
        key = (name, average, op, prescale_factor, postscale_factor, process_set)
        if self.lane_in_place(key, tensor):
            return tensor
        return handles.finish(self._start_allreduce([tensor], True, key, waits=True))

    def allreduce_async_(
        self,
        tensor: Any,
        average: Optional[bool] = None,
        name: Optional[str] = None,
        op: Optional[int] = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> int:
        """Starts `allreduce_`. Collective. The tensor must not be touched before the end.

        Returns:
            A handle for `poll` and `synchronize`.
        """
        key = (name, average, op, prescale_factor, postscale_factor, process_set)
        number: Optional[int] = self.lane_submit(key, tensor)
        return handles.add(self._start_allreduce([tensor], True, key)) if number is None else number

    def grouped_allreduce(
        self,
        tensors: Sequence[Any],
        average: Optional[bool] = None,
        name: Optional[str] = None,
        compression: Compressor = NoneCompressor,
        op: Optional[int] = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> list[Any]:
        """As `allreduce`, for a list of tensors that is negotiated as one unit. Collective. The lists must agree in
        length and order.

        Returns:
            The results, in the order of `tensors`.
        """
        tensors = list(tensors)
        tensors = self._tensors(ALLREDUCE, tensors, compression, name, process_set, False)
        pairs = [compression.compress(tensor) for tensor in tensors]
        sent = [pair[0] for pair in pairs]
        results = handles.finish(
            self._start_allreduce(
                sent, False, (name, average, op, prescale_factor, postscale_factor, process_set), False, waits=True
            )
        )
        return [compression.decompress(result, pair[1]) for result, pair in zip(results, pairs)]

    def grouped_allreduce_async(
        self,
        tensors: Sequence[Any],
        average: Optional[bool] = None,
        name: Optional[str] = None,
        op: Optional[int] = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> int:
        """Starts `grouped_allreduce`. Collective. Returns a handle; `synchronize` yields the list."""
        return handles.add(
            self._start_allreduce(
                list(tensors), False, (name, average, op, prescale_factor, postscale_factor, process_set), False
            )
        )

    def grouped_allreduce_(
        self,
        tensors: Sequence[Any],
        average: Optional[bool] = None,
        name: Optional[str] = None,
        op: Optional[int] = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> list[Any]:
        """As `grouped_allreduce`, in place. Collective. Returns the tensors given."""
        pending = self._start_allreduce(
            list(tensors), True, (name, average, op, prescale_factor, postscale_factor, process_set), False, waits=True
        )
        results: list[Any] = handles.finish(pending)
        return results

    def grouped_allreduce_async_(
        self,
        tensors: Sequence[Any],
        average: Optional[bool] = None,
        name: Optional[str] = None,
        op: Optional[int] = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> int:
        """Starts `grouped_allreduce_`. Collective. Returns a handle; `synchronize` yields the list."""
        return handles.add(
            self._start_allreduce(
                list(tensors), True, (name, average, op, prescale_factor, postscale_factor, process_set), False
            )
        )

    def reducescatter(
        self,
        tensor: Any,
        name: Optional[str] = None,
        compression: Compressor = NoneCompressor,
        op: int = Average,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> Any:
        """Combines the members' tensors and leaves each member a block of rows (first dimension).

        Collective. Of n rows each of s members gets n // s; the first n % s members get one more.

        Args:
            tensor: at least one dimension, contiguous; shape and dtype equal on all members.
            op: Average or Sum.
            name, compression, process_set, prescale_factor, postscale_factor: as of `allreduce`.

        Returns:
            This member's block, of the same dtype.

        Raises:
            InvalidArgumentError: a bad argument on this rank (the other members get a MismatchError).
            MismatchError: the members disagree on dtype, shape, op or factors.
            HorovodInternalError: a rank died or has joined, or the engine is shutting down.
        """
        (tensor,) = self._tensors(REDUCESCATTER, [tensor], compression, name, process_set)
        sent, context = compression.compress(tensor)
        key = (name, None, op, prescale_factor, postscale_factor, process_set)
        block = self.lane_placed(("reducescatter", key), sent)
        if block is None:
            block = handles.finish(self._start_reducescatter([sent], key, waits=True))
        return compression.decompress(block, context)

    def reducescatter_async(
        self,
        tensor: Any,
        name: Optional[str] = None,
        op: int = Average,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> int:
        """Starts `reducescatter`. Collective. Returns a handle."""
        return handles.add(
            self._start_reducescatter([tensor], (name, None, op, prescale_factor, postscale_factor, process_set))
        )

    def grouped_reducescatter(
        self,
        tensors: Sequence[Any],
        name: Optional[str] = None,
        compression: Compressor = NoneCompressor,
        op: int = Average,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> list[Any]:
        """As `reducescatter`, for a list of tensors that is negotiated as one unit. Collective. Returns the list of
        blocks."""
        tensors = list(tensors)
        tensors = self._tensors(REDUCESCATTER, tensors, compression, name, process_set, False)
        pairs = [compression.compress(tensor) for tensor in tensors]
        key = (name, None, op, prescale_factor, postscale_factor, process_set)
        results = handles.finish(self._start_reducescatter([pair[0] for pair in pairs], key, False, waits=True))
        return [compression.decompress(result, pair[1]) for result, pair in zip(results, pairs)]

    def grouped_reducescatter_async(
        self,
        tensors: Sequence[Any],
        name: Optional[str] = None,
        op: int = Average,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> int:
        """Starts `grouped_reducescatter`. Collective. Returns a handle; `synchronize` yields the list."""
        key = (name, None, op, prescale_factor, postscale_factor, process_set)
        return handles.add(self._start_reducescatter(list(tensors), key, False))
