"""`GradientReducer`: the framework-neutral part of a distributed optimizer.

Counts accumulation passes, completes groups, compresses, chooses factors and names, submits each gradient as soon as it
may go, and collects the results. A framework's optimizer tells it which gradient is ready and how one is read and
written; it never sees a tensor's inside. Used by the optimizers of `horovod.torch` and others; it performs no optimizer
step.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Container, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Callable, Final, Optional, Union

from horovod._core.errors import HorovodError, HorovodInternalError
from horovod._core.operations.collectives import Collectives
from horovod._core.operations.reduction_calls import ReduceArguments
from horovod._core.operations.sparse import SparseReduction
from horovod._core.tensors.compression import NoneCompressor, kind_of
from horovod._core.training.flights import Flight, Flights
from horovod._core.training.gradient_names import GradientNames
from horovod._core.training.groups import assign_groups
from horovod._core.training.reduction_options import ReductionOptions, checked_passes

__all__ = ["GradientReducer", "GradientSource"]


def _never(key: Any) -> bool:
    return False


@dataclass(frozen=True)
class GradientSource:
    """Where gradients come from and go to: the framework's part.

    Args:
        read: key -> the gradient as a tensor that may be reduced in place; zeros for a parameter without one.
        write: (key, tensor): stores a reduced gradient that is not the tensor that `read` gave.
        sparse: (tensor, name) -> its reduction, if the tensor is sparse and was submitted here; None for a dense
            tensor. Default: there are no sparse tensors.
        called: key -> the user's name of the parameter, for messages. Default: the one that is negotiated.
        elsewhere: key -> True while another reducer has this gradient, which is then not missing here. Default: never.
    """

    read: Callable[[Any], Any]
    write: Callable[[Any, Any], None]
    sparse: Optional[Callable[[Any, str], Optional[SparseReduction]]] = None
    called: Optional[Callable[[Any], str]] = None
    elsewhere: Callable[[Any], bool] = _never


_NONE: Final[frozenset[Hashable]] = frozenset()
_INTERRUPTED: Final = HorovodInternalError("A wait for gradients was interrupted; begin the step again.")


def _nothing() -> None:
    """What nobody has asked for."""


class GradientReducer:
    """Reduces the gradients of named parameters, each as soon as it is complete.

    Attributes:
        required: the keys of gradients that `synchronize` submits although they are not ready. May be changed.
        names: of the gradients; may be changed between steps.
        left: how many more times each gradient is accumulated before it is submitted. May be changed.

    Args:
        collectives: the operations of the framework.
        parameters: (key, name) of every parameter, equal names in equal order on all ranks. Keys are the framework's
            own.
        source: reads and writes gradients.
        options: how to reduce.
        groups: None, the number of groups, or lists of keys; the gradients of a group travel together.
    """

    def __init__(
        self,
        collectives: Collectives,
        parameters: Sequence[tuple[Hashable, str]],
        source: GradientSource,
        options: ReductionOptions,
        groups: Union[None, int, Iterable[Iterable[Hashable]]] = None,
    ) -> None:
        self._collectives = collectives
        self.names = GradientNames(dict(parameters))
        self._name_of = self.names.by_key
        self._source = source
        self._options = options
        self._passes = options.backward_passes_per_step
        # Those that contribute zeros where they are not ready; in the order of all.
        self.required: list[Hashable] = list(self._name_of)
        self._lock = threading.RLock()  # guards all below: hooks may run on several threads
        self._all_left = dict.fromkeys(self._name_of, self._passes)
        self.left = self._all_left.copy()
        self._group_of: dict[Hashable, tuple[Hashable, ...]] = {}
        for group in assign_groups(list(self._name_of), groups):
            self._group_of.update(dict.fromkeys(group, group))
        # Keys of a group that are complete, while the others are not.
        self._waiting: dict[tuple[Hashable, ...], set[Hashable]] = {}
        self._submitted: set[Hashable] = set()
        # What `settle` and `synchronize` have reduced, until another step begins.
        self._settled: frozenset[Hashable] = _NONE
        self._all = frozenset(self._name_of)
        # How often the gradients of this step have been reduced, and what names end with because of it: a rank that
        # computes them more often than the others waits and is named, and does not meet the others' next step.
        self._round = 0
        self._failure: Optional[Exception] = None  # of a wait in the middle of a step; `synchronize` raises it too
        self._flights = Flights(self._finish)
        self.have_ended = self._flights.have_ended  # says that of what has been submitted
        # The lane, for dense gradients that travel alone and as they are.
        self._plain = kind_of(options.compression) is NoneCompressor
        self._again = self.names.lane_calls
        # Called before the first submission of a step, but not before each; see `default_check`.
        self.before_first: Callable[[], None] = _nothing

    @property
    def step_has_begun(self) -> bool:
        """True between the first submission of a step, or the first gradient of a group, and the end of
        `synchronize`."""
        return bool(self._submitted or self._waiting)

    @property
    def backward_passes_per_step(self) -> int:
        """How many times a gradient is accumulated before it is reduced."""
        return self._passes

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Changes the number of accumulations, from the next gradient on.

        Raises:
            InvalidArgumentError: not a positive integer.
        """
        passes = checked_passes(passes)
        with self._lock:
            self._passes = passes
            self._all_left = dict.fromkeys(self._name_of, passes)
            self.left = self._all_left.copy()

    def ready(self, key: Hashable) -> None:
        """The gradient of a parameter has been accumulated once. Submits it, or its group, if that was the last time
        and the last member.

        A gradient that has been reduced in this step already is averaged with the others' once more: what was added to
        the average since, which is equal on all ranks, is averaged by that. Other operations do not allow it.

        Collective in its effect: the same gradients must become ready on all ranks, in any order.

        Raises:
            AssertionError: it had been accumulated `backward_passes_per_step` times already, and is not averaged.
        """
        with self._lock:
            if self._settled:
                self._settled = _NONE
            if key in self._submitted:
                self.end_round(key, begins_next=True)
            left = self.left[key] - 1
            self.left[key] = left
            if left != 0:
                return
            started: list[Any] = []
            if key in self._again and not self._round:
                self._start_again([key], [self._source.read(key)], started)
            if not started:
                self._complete(key)

    def ready_again(self, keys: list[Hashable], tensors: list[Any], started: list[Any], wait_s: float = 0.0) -> bool:
        """`ready` for gradients that have been read already, up to the first for which this is not the last pass, or
        which is not like the one before.

        Args:
            tensors: as `GradientSource.read` gives them, one for each key.
            started: gets an entry for each that is submitted, also when this raises.
            wait_s: seconds to wait, if all were submitted; 0: do not wait.

        Returns:
            True if they have been waited for, and are reduced.
        """
        with self._lock:
            if self._settled or self._round:
                return False
            # What has been submitted is left for no more passes.
            others = [place for place, key in enumerate(keys) if key not in self._again or self.left[key] != 1]
            first = keys[: others[0]] if others else keys
            return self._start_again(first, tensors, started, 0.0 if others else wait_s)

    def synchronize(self, once: bool = False) -> None:
        """Submits what is missing (zeros for parameters without a gradient), waits for everything and writes the
        results.

        Collective.

        Args:
            once: the next `synchronize` does not reduce these gradients again, unless one becomes ready before or they
                are forgotten.

        Raises:
            MismatchError: the ranks disagree about a gradient.
            HorovodInternalError: a rank died, or the engine is shutting down.
        """
        with self._lock:
            self._submit_missing()
            failure, self._failure = self._failure, None
            flights = self._end_step()
        flights.land()
        if failure is not None:
            raise failure
        if once:
            self._settled = self._all

    def has_submitted(self, key: Hashable) -> bool:
        """True if a gradient has been submitted in this step."""
        return key in self._submitted

    def leave_out(self, keys: Iterable[Hashable]) -> None:
        """Another optimizer has reduced these gradients, or will: `synchronize` does not, until the next step."""
        left_out = self._all.intersection(keys)
        self._submitted -= left_out
        self._settled |= left_out
        self.left.update(dict.fromkeys(left_out, self._passes))
        waiting = {group: complete - left_out for group, complete in self._waiting.items()}
        self._waiting = {group: complete for group, complete in waiting.items() if complete}

    @property
    def is_open(self) -> bool:
        """True while something that was submitted has not been waited for, or waits for others of its group."""
        return bool(self._flights or self._waiting)

    @property
    def missing(self) -> list[Hashable]:
        """What `synchronize` would submit although it is not ready."""
        if len(self._submitted) == len(self._name_of):
            return []
        done, elsewhere = self._submitted | self._settled, self._source.elsewhere
        return [key for key in self.required if key not in done and not elsewhere(key)]

    def submit(self, key: Hashable) -> None:
        """Submits a gradient, or its group, that is not ready, unless it has been submitted."""
        with self._lock:
            if key in self._name_of and key not in self._submitted and key not in self._settled:
                self._submit(self._group_of.get(key, (key,)))

    def land(self, keys: Optional[Container[Hashable]] = None) -> None:
        """Waits for what has been submitted, or for some of it, and writes the results; the step goes on.

        Raises:
            HorovodError: as `synchronize`, which raises it once more.
        """
        with self._lock:
            flights = self._flights.take(keys)
        try:
            flights.land()
        except BaseException as error:  # after a signal handler's the engine still uses gradients
            self._failure = self._failure or (error if isinstance(error, Exception) else _INTERRUPTED)
            raise

    def land_within(self, timeout_s: float) -> bool:
        """`land` if everything ends within some seconds; False: something has not, or has failed, which `synchronize`
        will raise."""
        with self._lock:
            if not self._flights.end_within(timeout_s):
                return False
        with contextlib.suppress(Exception):
            self.land()
        return self._failure is None

    def settle(self, has_begun: bool) -> bool:
        """Ends a step early: submits what is missing, which other ranks may have submitted, waits for everything,
        writes the results, and ends the step. `synchronize` does not reduce these gradients again, unless one becomes
        ready before or they are forgotten.

        Args:
            has_begun: some gradient has been submitted, of this reducer or of another one of the optimizer; else
                nothing is.

        Returns:
            False if an operation failed; then everything is forgotten.
        """
        with self._lock:
            is_whole, self._failure = self._failure is None, None
            if has_begun:
                try:
                    self._submit_missing()
                except HorovodError:  # such as when the engine is gone: what is under way must still land
                    is_whole = False
            settled = self._settled | self._submitted
            flights = self._end_step()
        try:
            flights.land()
        except HorovodError:
            return False
        if is_whole:
            self._settled = settled
        return is_whole

    def forget_settled(self) -> None:
        """The gradients have changed since `settle` reduced them: the next `synchronize` reduces them again."""
        self._settled = _NONE

    def reset(self) -> None:
        """Forgets a step that has begun: waits for what has been submitted, leaves its results unused.
        For use after a failure."""
        with self._lock:
            self._failure = None
            flights = self._end_step()
        flights.drop()

    def _submit_missing(self) -> None:
        for key in self.missing:
            if key not in self._submitted:  # with another one of its group
                self._submit(self._group_of.get(key, (key,)))

    def end_round(self, key: Hashable, begins_next: bool = False) -> None:
        """A gradient that has been submitted is being computed once more: submits what is missing, which the other
        ranks may wait for before they do the same.

        Args:
            key: of that gradient.
            begins_next: it has been computed; waits for everything, so that it can be submitted again.

        Raises:
            AssertionError: gradients are not averaged.
        """
        if not self._options.row.divides:
            called = self._source.called or self._name_of.__getitem__
            raise AssertionError(
                f"The gradient of '{called(key)}' was computed more than backward_passes_per_step ({self._passes}) "
                "times before step(). Call step() or synchronize() after that many backward passes, or raise "
                "backward_passes_per_step."
            )
        with self._lock:
            self._submit_missing()
            if begins_next:
                following = self._round + 1
                self._end_step().land()
                self._round = following

    def _end_step(self) -> Flights:
        """Ends a step: the next gradient belongs to another one. Returns the reductions under way."""
        self._submitted.clear()
        self._settled = _NONE
        self._waiting.clear()
        self.left = self._all_left.copy()
        self._round = 0
        return self._flights.take() if self._flights else self._flights

    def _start_again(self, keys: list[Hashable], tensors: list[Any], started: list[Any], wait_s: float = 0.0) -> bool:
        """By the lane, up to the first gradient that has changed its form. True if all were submitted, and reduced
        within `wait_s`."""
        have_landed = False
        try:
            entries = [self._again[key] for key in keys]
            have_landed = bool(self._collectives.lane_each(entries, tensors, started, wait_s))
        finally:
            done = keys[: len(started)]
            self._submitted.update(done)
            self.left.update(dict.fromkeys(done, 0))
            if not have_landed:
                self._flights.plain.update(zip(done, started))
        if len(done) < len(keys):
            del self._again[keys[len(done)]]
        return have_landed

    def _complete(self, key: Hashable) -> None:
        group = self._group_of.get(key)
        if group is None:
            self._submit((key,))
            return
        complete = self._waiting.setdefault(group, set())
        complete.add(key)
        if len(complete) == len(group):
            self._submit(group)

    def _submit(self, keys: tuple[Hashable, ...]) -> None:
        if not self._submitted:
            self.before_first()
        self._waiting.pop(keys, None)
        if len(keys) > 1:
            keys = tuple(key for key in keys if key not in self._settled and not self._source.elsewhere(key))
        self._submitted.update(keys)
        for key in keys:
            self.left[key] = 0
        dense: list[Any] = []
        pairs: list[tuple[Any, Any]] = []
        source, compress = self._source, self._options.compression.compress
        for key in keys:
            tensor = source.read(key)
            sparse = source.sparse(tensor, self._negotiated(key)) if source.sparse is not None else None
            if sparse is not None:
                # Without the tensor: references to it say whether the program holds it.
                self._flights.others.append(Flight((key,), (), (), None, sparse))
            else:
                dense.append((key, tensor))
                pairs.append(compress(tensor))
        if not dense:
            return
        names: Any = tuple(self._negotiated(key) for key, _ in dense)
        single = len(keys) == 1
        options = self._options
        arguments = ReduceArguments(
            names[0] if single else names, None, options.op, *options.factors, options.process_set
        )
        pending = self._collectives.start_allreduce([pair[0] for pair in pairs], arguments, single)
        if single and self._plain and not self._round and keys[0] not in self._group_of:
            again = self._collectives.lane_calls.take(arguments)
            if again is not None:
                self._again[keys[0]] = again
        self._flights.others.append(
            Flight([key for key, _ in dense], [tensor for _, tensor in dense], [pair[1] for pair in pairs], pending)
        )

    def _negotiated(self, key: Hashable) -> str:
        name = self._name_of[key]
        return f"{name}.pass{self._round + 1}" if self._round else name

    def _finish(self, flight: Flight, result: Any) -> None:
        if flight.pending is None:
            self._source.write(flight.keys[0], result)
            return
        results = result if isinstance(result, list) or len(flight.keys) > 1 else [result]
        decompress = self._options.compression.decompress
        for key, tensor, context, each in zip(flight.keys, flight.tensors, flight.contexts, results):
            reduced = decompress(each, context)
            if reduced is not tensor:
                self._source.write(key, reduced)
