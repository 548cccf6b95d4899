"""What all operations on tensors share: the adapter, the calls made before, staging through the host, results.

Base of `Reductions` and `Movements`. No operation of its own.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Callable, Final

from horovod._core.errors import InvalidArgumentError
from horovod._core.life import handles, session
from horovod._core.operations import checks, placing
from horovod._core.operations.prepared_calls import PreparedCalls
from horovod._core.operations.prepared_on_gpu import device_results
from horovod._core.tensors.adapter import Adapter


def _no_lane(key: Hashable, tensor: Any) -> None:
    """What a lane answers that has no entry that fits."""


class TensorOperations:
    """Operations for the tensors of one framework.

    Args:
        adapter: answers the questions about tensors.

    Attributes:
        prepared: the calls made before, ready to go again.
        lane_in_place: the fastest way for a prepared operation in place: (key, tensor), False if there is none.
        lane_placed: the fastest way for one whose result is probably as long as the last one: it, or None.
        lane_submit: the fastest way to submit one: a handle for users, None if there is none.
        lane_again: the same of a `Prepared` that is in no table: (prepared, tensor) -> `handles.Pending`.
    """

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter
        self.prepared: Final = PreparedCalls(adapter)
        # The hot path: bound here, one look-up less.
        lane = self.prepared.lane
        self.lane_in_place: Callable[[Hashable, Any], Any] = _no_lane if lane is None else lane.run_in_place
        self.lane_submit: Callable[[Hashable, Any], Any] = _no_lane if lane is None else lane.submit_in_place
        self.lane_again: Callable[[Any, Any], Any] = _no_lane if lane is None else lane.start_in_place
        self.lane_placed: Callable[[Hashable, Any], Any] = _no_lane if lane is None else lane.run_placed
        self._lane_alike: Callable[[Hashable, Any], Any] = _no_lane if lane is None else lane.run_alike

    def _run_in_place(self, key: Hashable, tensor: Any) -> bool:
        """Runs an operation of one tensor in place, if it is prepared."""
        return self.lane_in_place(key, tensor) or self.prepared.run_in_place(key, tensor)

    def _run_alike(self, key: Hashable, tensor: Any) -> Any:
        """The result of an operation that is prepared, of the tensor's form; or None."""
        result = self._lane_alike(key, tensor)
        return self.prepared.run_alike(key, tensor) if result is None else result

    def _run_placed(self, key: Hashable, tensor: Any) -> Any:
        """The result of an operation that is prepared, probably as long as the last one; or None."""
        result = self.lane_placed(key, tensor)
        return self.prepared.run_placed(key, tensor) if result is None else result

    def _require_movable(self, what: str, tensors: Sequence[Any]) -> None:
        """Raises InvalidArgumentError unless all are tensors of a known element type, whose values lie in memory
        without gaps."""
        checks.require_tensors(what, self._adapter, tensors)
        for reason in map(self._adapter.unfit, tensors):
            if reason:
                raise InvalidArgumentError(f"{what} {reason}")
        checks.require_movable(what, self._adapter, tensors)

    def _taken(self, value: Any) -> Any:
        """What an out-of-place operation works on where the user gave `value`. Frameworks whose calls come here at once
        make tensors of more than their tensors."""
        return value

    def _place(self, tensors: list[Any]) -> placing.Placed:
        """See `placing.place`."""
        return placing.place(self._adapter, tensors)

    def _results(self, owner: session.Session, handle: int, likes: Sequence[Any], on_gpu: bool) -> list[Any]:
        """Core-allocated results, one per tensor, on the devices of `likes`. on_gpu: where the core has them."""
        adapter, gpu = self._adapter, self._adapter.gpu
        if gpu is not None and on_gpu:
            return device_results(gpu, likes, handle, owner)
        return [
            adapter.from_host(adapter.wrap(owner.engine.take_result(handle, index), like), like)
            for index, like in enumerate(likes)
        ]

    def _finisher_for(self, likes: Sequence[Any], single: bool) -> Callable[[bool], handles.Finisher]:
        """Of whether the core has them on the GPU: what takes core-allocated results, one per tensor, onto the devices
        of `likes`."""

        def finisher_for(on_gpu: bool) -> handles.Finisher:
            def finisher(owner: session.Session, handle: int) -> Any:
                results = self._results(owner, handle, likes, on_gpu)
                return results[0] if single else results

            return finisher

        return finisher_for
