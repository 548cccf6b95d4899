"""How the calls of a random program are made: with handles in NumPy and PyTorch, by functions and graphs in
TensorFlow.

A `Way` makes inputs of a call, runs it, and gives back its results as arrays; what they should be it does not know.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Callable, Protocol

import numpy as np
from random_programs.programs import Array, Call, Together
from targets import TARGETS, Target


@dataclass
class Outcome:
    """What a rank has of a call.

    Attributes:
        results: an array for each part.
        received: rows from each member, where the call tells them.
        afterwards: the inputs after the call.
        same: of a call in place, the results are the tensors given.
    """

    results: list[Array]
    received: list[int]
    afterwards: list[Array]
    same: bool = True


class Way(Protocol):
    """One framework's."""

    target: Target

    def blocking(self, call: Call, rank: int, process_set: Any) -> Outcome:
        """Runs a call that waits. Collective."""
        ...

    def together(self, step: Together, rank: int, sets: dict[int, Any], between: Callable[[], None]) -> list[Outcome]:
        """Runs this rank's calls of a step at once; their outcomes in the order in which it waits. Collective.

        Args:
            between: to be called while they are under way.
        """
        ...

    def at_once(self, calls: Sequence[Call], rank: int, process_set: Any) -> list[Outcome]:
        """Runs calls, started one after the other without waiting where that is possible. Collective."""
        ...


def way_of(framework: str) -> Way:
    """The way of a framework, which this imports."""
    if framework != "tensorflow":
        return WithHandles(TARGETS[framework]())
    from random_programs.ways_tensorflow import InTensorFlow

    return InTensorFlow()


def arguments(hvd: Any, call: Call, rank: int, process_set: Any, waits: bool) -> dict[str, Any]:
    """What a call is given besides its tensors."""
    given: dict[str, Any] = {"name": call.name, "process_set": process_set}
    if call.kind in ("allreduce", "reducescatter"):
        given |= {"op": call.op, "prescale_factor": call.factors[0], "postscale_factor": call.factors[1]}
        if waits and not call.in_place:
            given["compression"] = getattr(hvd.Compression, call.compression)
    elif call.kind == "sparse":
        given["op"] = call.op
    elif call.kind == "broadcast":
        given["root_rank"] = call.root
    elif call.splits is not None:
        given["splits"] = list(call.splits[call.members.index(rank)])
    return given


def called(call: Call, asynchronous: bool) -> str:
    """The name of the public function."""
    name = f"grouped_{call.kind}" if call.grouped else call.kind
    return name + ("_async" if asynchronous else "") + ("_" if call.in_place else "")


class WithHandles:
    """NumPy and PyTorch."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._hvd = target.hvd

    def blocking(self, call: Call, rank: int, process_set: Any) -> Outcome:
        if call.kind == "sparse":
            tensors, wait = self._start(call, rank, process_set)
            return self._outcome(call, tensors, wait())
        tensors = self._tensors(call, rank)
        function = getattr(self._hvd, called(call, False))
        given = arguments(self._hvd, call, rank, process_set, True)
        result = function(tensors if call.grouped else tensors[0], **given)
        if call.kind == "alltoall" and call.splits is None:
            result = result, []
        return self._outcome(call, tensors, result)

    def together(self, step: Together, rank: int, sets: dict[int, Any], between: Callable[[], None]) -> list[Outcome]:
        started = {}
        for n in step.start_order(rank):
            started[n] = self._start(step.calls[n], rank, sets[step.calls[n].process_set], step.way == "polled")
        between()
        return [self._outcome(step.calls[n], started[n][0], started[n][1]()) for n in step.wait_order(rank)]

    def at_once(self, calls: Sequence[Call], rank: int, process_set: Any) -> list[Outcome]:
        started = [self._start(call, rank, process_set) for call in calls]
        return [self._outcome(call, tensors, wait()) for call, (tensors, wait) in zip(calls, started)]

    def _start(
        self, call: Call, rank: int, process_set: Any, polled: bool = False
    ) -> tuple[list[Any], Callable[[], Any]]:
        given = arguments(self._hvd, call, rank, process_set, False)
        if call.kind == "sparse":
            tensor = self._sparse(call, rank)
            reduced = self._hvd.sparse_allreduce_async(tensor, **given)
            return [], lambda: reduced().to_dense()
        tensors = self._tensors(call, rank)
        function = getattr(self._hvd, called(call, True))
        handle = function(tensors if call.grouped else tensors[0], **given)

        def wait() -> Any:
            while polled and not self._hvd.poll(handle):
                pass
            return self._hvd.synchronize(handle)

        return tensors, wait

    def _tensors(self, call: Call, rank: int) -> list[Any]:
        tensors = [self.target.tensor(array) for array in call.inputs(rank)]
        if call.form == "gappy":
            return [_gappy(tensor) for tensor in tensors]
        return [tensor.requires_grad_() for tensor in tensors] if call.form == "gradient" else tensors

    def _sparse(self, call: Call, rank: int) -> Any:
        import torch

        (rows,), places = call.inputs(rank), torch.from_numpy(call.indices(rank))
        shape = (call.extent, *rows.shape[1:])
        return torch.sparse_coo_tensor(places[None], torch.from_numpy(rows), shape, check_invariants=True)

    def _outcome(self, call: Call, tensors: list[Any], result: Any) -> Outcome:
        received: Any = []
        if call.kind == "alltoall":
            result, received = result
        results = list(result) if call.grouped else [result]
        same = not call.in_place or all(mine is given for mine, given in zip(results, tensors))
        splits = [int(rows) for rows in self._array(received)] if call.splits is not None else []
        return Outcome([self._array(each) for each in results], splits, [self._array(each) for each in tensors], same)

    def _array(self, tensor: Any) -> Array:
        if hasattr(tensor, "detach"):
            tensor = tensor.detach()
        # A copy: what other calls do to the tensor's memory later must be seen as their fault.
        return np.array(tensor if isinstance(tensor, list) else self.target.array(tensor))


def _gappy(tensor: Any) -> Any:
    """A view with the same values and gaps between them; a scalar has none."""
    if not tensor.dim():
        return tensor
    return tensor.repeat_interleave(2, dim=-1)[..., ::2] if tensor.shape[-1] else tensor
