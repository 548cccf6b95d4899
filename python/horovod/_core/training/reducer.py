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
from typing import Any, Callable, Optional, Union

from horovod._core.errors import HorovodError, InvalidArgumentError, UnsupportedError
from horovod._core.life import handles
from horovod._core.life.process_sets import ProcessSet, global_process_set
from horovod._core.operations.collectives import Collectives
from horovod._core.operations.prepared import Prepared
from horovod._core.operations.reduce_ops import Average, Row, meant
from horovod._core.operations.reduction_calls import ReduceArguments
from horovod._core.tensors.compression import Compressor, NoneCompressor, kind_of
from horovod._core.training.groups import assign_groups

__all__ = ["GradientReducer", "GradientSource", "ReductionOptions", "check_names"]


@dataclass(frozen=True)
class ReductionOptions:
    """How gradients are reduced; the arguments of a DistributedOptimizer that have nothing to do with its framework.

    Args:
        op: Average, Sum, Adasum, ...
        compression: see `horovod._core.tensors.compression`.
        gradient_predivide_factor: f splits the averaging: 1/f before the sum, f/size after it.
        backward_passes_per_step: gradients are accumulated so many times before they are reduced.
        process_set: the ranks that take part.

    Raises:
        InvalidArgumentError: a factor with an op other than Average, no positive number of passes, no process set, no
            compressor.
        UnsupportedError: Adasum on a process set.
    """

    op: int = Average
    compression: Compressor = NoneCompressor
    gradient_predivide_factor: float = 1.0
    backward_passes_per_step: int = 1
    process_set: ProcessSet = global_process_set

    def __post_init__(self) -> None:
        check_passes(self.backward_passes_per_step)
        if not isinstance(self.process_set, ProcessSet):
            raise InvalidArgumentError(f"process_set must be an hvd.ProcessSet. Received: {self.process_set!r}.")
        if not isinstance(self.compression, Compressor):
            raise InvalidArgumentError(
                "compression must be hvd.Compression.none, .fp16 or .bf16, or have compress() and decompress(). "
                f"Received: {self.compression!r}."
            )
        if self.gradient_predivide_factor != 1.0 and not self.row.divides:
            raise InvalidArgumentError(
                "gradient_predivide_factor works with op=hvd.Average only; leave it at 1.0 for other operations."
            )
        if not self.gradient_predivide_factor > 0:
            raise InvalidArgumentError(
                f"gradient_predivide_factor must be > 0. Received: {self.gradient_predivide_factor!r}."
            )
        if self.row.directions and self.process_set.process_set_id != 0:
            raise UnsupportedError(
                "Adasum works on the global process set only; use op=hvd.Average with a process set."
            )

    @property
    def row(self) -> Row:
        """What sets the operation apart."""
        return meant(self.op).row

    @property
    def factors(self) -> tuple[float, float]:
        """(prescale, postscale) beside the op, which divides by the size itself."""
        if self.gradient_predivide_factor == 1.0:
            return 1.0, 1.0
        return 1.0 / self.gradient_predivide_factor, self.gradient_predivide_factor


@dataclass(frozen=True)
class GradientSource:
    """Where gradients come from and go to: the framework's part.

    Args:
        read: key -> the gradient as a tensor that may be reduced in place; zeros for a parameter without one.
        write: (key, tensor): stores a reduced gradient that is not the tensor that `read` gave.
        sparse: (tensor, name) -> a function that waits and returns the reduced tensor, if the tensor is sparse and was
            submitted here; None for a dense tensor. Default: there are no sparse tensors.
        called: key -> the user's name of the parameter, for messages. Default: the one that is negotiated.
    """

    read: Callable[[Any], Any]
    write: Callable[[Any, Any], None]
    sparse: Optional[Callable[[Any, str], Optional[Callable[[], Any]]]] = None
    called: Optional[Callable[[Any], str]] = None


@dataclass(frozen=True, eq=False)
class _Flight:
    """Gradients under way: one dense submission (keys, their tensors and compression contexts), or one sparse
    tensor."""

    keys: Sequence[Any]
    tensors: Sequence[Any]
    contexts: Sequence[Any]
    pending: Optional[handles.Pending]
    sparse_result: Optional[Callable[[], Any]] = None


class GradientReducer:
    """Reduces the gradients of named parameters, each as soon as it is complete.

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
        self._lane_again = collectives.lane_again  # one frame less
        self._name_of = dict(parameters)
        self._source = source
        self._options = options
        self._passes = options.backward_passes_per_step
        self._lock = threading.Lock()  # guards all below: hooks may run on several threads
        self._left = dict.fromkeys(self._name_of, self._passes)
        self._group_of: dict[Hashable, tuple[Hashable, ...]] = {}
        for group in assign_groups(list(self._name_of), groups):
            self._group_of.update(dict.fromkeys(group, group))
        # Keys of a group that are complete, while the others are not.
        self._waiting: dict[tuple[Hashable, ...], set[Hashable]] = {}
        self._submitted: set[Hashable] = set()
        # What `settle` and `synchronize` have reduced, until another step begins.
        self._settled: set[Hashable] = set()
        # How often the gradients of this step have been reduced, and what names end with because of it: a rank that
        # computes them more often than the others waits and is named, and does not meet the others' next step.
        self._round = 0
        self._failure: Optional[Exception] = None  # of a wait in the middle of a step; `synchronize` raises it too
        self._flights: list[_Flight] = []
        # The short way, for dense gradients that travel alone and as they are: their prepared submissions, and those
        # under way. Nothing is left to do when these have landed.
        self._plain = kind_of(options.compression) is NoneCompressor
        self._again: dict[Hashable, Prepared] = {}
        self._plain_flights: dict[Hashable, handles.Pending] = {}

    @property
    def pending(self) -> bool:
        """True between the first submission of a step and the end of `synchronize`."""
        return bool(self._submitted)

    @property
    def backward_passes_per_step(self) -> int:
        """How many times a gradient is accumulated before it is reduced."""
        return self._passes

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Changes the number of accumulations, from the next gradient on.

        Raises:
            InvalidArgumentError: not a positive integer.
        """
        check_passes(passes)
        with self._lock:
            self._passes = passes
            self._left = dict.fromkeys(self._name_of, passes)

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
                self._settled.clear()
            if key in self._submitted:
                self._begin_round(key)
            left = self._left[key] - 1
            self._left[key] = left
            if left == 0 and not (
                key in self._again and not self._round and self._submit_again(key, self._source.read(key))
            ):
                self._complete(key)

    def ready_again(self, key: Hashable, tensor: Any) -> bool:
        """`ready` for a gradient that has been read already, if it is the last pass and like the one before.

        Args:
            tensor: as `GradientSource.read` gives it.

        Returns:
            False: nothing has been done; call `ready`.
        """
        with self._lock:
            if key not in self._again or self._left[key] != 1 or self._settled or self._round:
                return False
            if key in self._submitted:
                return False
            if not self._submit_again(key, tensor):
                return False
            self._left[key] = 0
            return True

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
            plain, flights = self._begin_anew()
        self._land(plain, flights)
        if failure is not None:
            raise failure
        if once:
            self._settled.update(self._name_of)

    def has_submitted(self, key: Hashable) -> bool:
        """True if a gradient has been submitted in this step."""
        return key in self._submitted

    def settle_alone(self, keys: Iterable[Hashable]) -> None:
        """Somebody else has reduced these, or will: `synchronize` does not, until another step begins."""
        for key in self._name_of.keys() & keys:
            self._submitted.discard(key)
            self._settled.add(key)

    @property
    def is_open(self) -> bool:
        """True while something that was submitted has not been waited for."""
        return bool(self._plain_flights or self._flights)

    @property
    def missing(self) -> list[Hashable]:
        """What `synchronize` would submit although it is not ready."""
        if len(self._submitted) == len(self._name_of):
            return []
        return [key for key in self._name_of if key not in self._submitted and key not in self._settled]

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
            chosen = [key for key in self._plain_flights if keys is None or key in keys]
            plain = [self._plain_flights.pop(key) for key in chosen]
            flights = [one for one in self._flights if keys is None or any(key in keys for key in one.keys)]
            if flights:
                self._flights = [one for one in self._flights if one not in flights]
        try:
            self._land(plain, flights)
        except Exception as error:
            self._failure = self._failure or error
            raise

    def land_within(self, timeout_s: float) -> bool:
        """`land` if everything ends within some seconds; False: something has not. Failures are left to
        `synchronize`."""
        with self._lock:
            if self._plain_flights and handles.finish_all_briefly(list(self._plain_flights.values())):
                self._plain_flights.clear()
            pending = _pending_of(list(self._plain_flights.values()), self._flights)
            if any(one.pending is None for one in self._flights) or not handles.end_within(pending, timeout_s):
                return False
        with contextlib.suppress(Exception):
            self.land()
        return True

    def settle(self, has_begun: bool) -> bool:
        """Ends a step early: submits what is missing, which other ranks may have submitted, waits for everything,
        writes the results, and counts anew. `synchronize` does not reduce these gradients again, unless one becomes
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
                except HorovodError:  # the engine is gone, say: what is under way must land all the same
                    is_whole = False
            settled = self._settled | self._submitted
            plain, flights = self._begin_anew()
        try:
            self._land(plain, flights)
        except HorovodError:
            return False
        if is_whole:
            self._settled = settled
        return is_whole

    def forget_settled(self) -> None:
        """Gradients that `settle` has reduced hold something else now."""
        self._settled.clear()

    def reset(self) -> None:
        """Forgets a step that has begun: waits for what has been submitted, leaves its results unused, and counts anew.
        For use after a failure."""
        with self._lock:
            self._failure = None
            plain, flights = self._begin_anew()
        flying = _pending_of(plain, flights)
        try:
            for pending in flying:
                with contextlib.suppress(HorovodError):
                    handles.finish(pending)
            for flight in flights:
                with contextlib.suppress(HorovodError):
                    if flight.sparse_result is not None:
                        flight.sparse_result()
        except BaseException:  # a signal handler raised: the engine still uses the gradients that have not landed
            handles.abandon(*flying)
            raise

    def _submit_missing(self) -> None:
        if len(self._submitted) == len(self._name_of):
            return
        for key in self._name_of:
            if key not in self._submitted and key not in self._settled:
                self._submit(self._group_of.get(key, (key,)))

    def begin_round(self, key: Hashable) -> None:
        """`ready` begins with it for a gradient that has been submitted: waits for all gradients of the step so far,
        also the missing ones."""
        with self._lock:
            self._begin_round(key)

    def end_round(self, key: Hashable) -> None:
        """A gradient that has been submitted is being computed once more: submits what is missing, since the other
        ranks may wait for it before they compute theirs.

        Raises:
            AssertionError: gradients are not averaged.
        """
        with self._lock:
            self._require_rounds(key)
            self._submit_missing()

    def _begin_round(self, key: Hashable) -> None:
        """Ends a round of reductions in the middle of a step, as all ranks do that compute a gradient once more."""
        self._require_rounds(key)
        self._submit_missing()
        current = self._round
        self._land(*self._begin_anew())
        self._round = current + 1

    def _require_rounds(self, key: Hashable) -> None:
        if not self._options.row.divides:
            called = self._source.called or self._name_of.__getitem__
            raise AssertionError(
                f"The gradient of '{called(key)}' was computed more than backward_passes_per_step ({self._passes}) "
                "times before step(). Call step() or synchronize() after that many backward passes, or raise "
                "backward_passes_per_step."
            )

    def _begin_anew(self) -> tuple[list[handles.Pending], list[_Flight]]:
        """Ends a step; what is under way."""
        plain = list(self._plain_flights.values())
        self._plain_flights.clear()
        flights, self._flights = self._flights, []
        self._submitted.clear()
        self._settled = set()
        self._waiting.clear()
        self._left = dict.fromkeys(self._name_of, self._passes)
        self._round = 0
        return plain, flights

    def _submit_again(self, key: Hashable, tensor: Any) -> bool:
        """The short way; False if the gradient has changed its form."""
        prepared = self._again[key]
        pending = self._lane_again(prepared, tensor)
        if pending is None:
            pending = self._collectives.start_allreduce_again(prepared, tensor)
        if pending is None:
            del self._again[key]
            return False
        self._submitted.add(key)
        self._plain_flights[key] = pending
        return True

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
        self._submitted.update(keys)
        dense: list[Any] = []
        pairs: list[tuple[Any, Any]] = []
        source, compress = self._source, self._options.compression.compress
        for key in keys:
            tensor = source.read(key)
            wait = source.sparse(tensor, self._negotiated(key)) if source.sparse is not None else None
            if wait is not None:
                self._flights.append(_Flight((key,), (tensor,), (None,), None, wait))
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
        if single and self._plain and not self._round:
            prepared = self._collectives.prepared.take(arguments.key)
            if prepared is not None:
                self._again[keys[0]] = prepared
        self._flights.append(
            _Flight([key for key, _ in dense], [tensor for _, tensor in dense], [pair[1] for pair in pairs], pending)
        )

    def _negotiated(self, key: Hashable) -> str:
        name = self._name_of[key]
        return f"{name}.pass{self._round + 1}" if self._round else name

    def _land(self, plain: Sequence[handles.Pending], flights: Sequence[_Flight]) -> None:
        """Waits for all flights, also after one has failed: no tensor may be in use when the caller goes on. Raises the
        first failure."""
        failure: Optional[Exception] = None
        flying = _pending_of(plain, flights)
        try:
            for pending in () if handles.finish_all(plain) else plain:
                try:
                    handles.finish(pending)
                except Exception as error:  # whatever failed, the other gradients are still under way
                    failure = failure or error
            for flight in flights:
                try:
                    self._land_one(flight)
                except Exception as error:  # as above
                    failure = failure or error
        except BaseException:  # a signal handler raised: the engine still uses the gradients that have not landed
            handles.abandon(*flying)
            raise
        if failure is not None:
            raise failure

    def _land_one(self, flight: _Flight) -> None:
        if flight.pending is None:
            if flight.sparse_result is not None:
                self._source.write(flight.keys[0], flight.sparse_result())
            return
        results = handles.finish(flight.pending)
        if len(flight.keys) == 1 and not isinstance(results, list):
            results = [results]
        decompress = self._options.compression.decompress
        for key, tensor, context, result in zip(flight.keys, flight.tensors, flight.contexts, results):
            reduced = decompress(result, context)
            if reduced is not tensor:
                self._source.write(key, reduced)


def _pending_of(plain: Sequence[handles.Pending], flights: Sequence[_Flight]) -> list[handles.Pending]:
    return [*plain, *(flight.pending for flight in flights if flight.pending is not None)]


def check_passes(passes: Any) -> None:
    """Raises InvalidArgumentError unless `passes` is a positive integer."""
    if isinstance(passes, bool) or not isinstance(passes, int) or passes < 1:
        raise InvalidArgumentError(f"backward_passes_per_step must be an integer >= 1. Received: {passes!r}.")


def count_pass(optimizer: Any) -> Any:
    """Lets the `iterations` of a Keras optimizer advance in a pass whose gradients are only added up: schedules count
    passes. What `assign_add` returns; None for an optimizer that counts nothing, or that adds gradients up itself and
    tells by this number when it has enough."""
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)  # of a LossScaleOptimizer
    # In Keras 3 `iterations` need not be the variable itself.
    counter = getattr(optimizer, "_iterations", None)
    if counter is None:
        counter = getattr(optimizer, "iterations", None)
    if counter is None or getattr(optimizer, "gradient_accumulation_steps", None):
        return None
    return counter.assign_add(1)


def check_names(named: Sequence[Any], keys: Iterable[Hashable]) -> list[tuple[Hashable, str]]:
    """The (key, name) pairs of a user's `named_parameters`, in the order of `keys`.

    Args:
        named: (name, key) tuples.
        keys: all parameters that will be reduced.

    Raises:
        InvalidArgumentError: an entry is no such tuple, a name occurs twice, or a parameter has no name.
    """
    name_of: dict[Hashable, str] = {}
    for entry in named:
        if not isinstance(entry, tuple) or len(entry) != 2 or not isinstance(entry[0], str):
            raise InvalidArgumentError(
                f"named_parameters must hold (name, parameter) tuples, as model.named_parameters() gives them. "
                f"Received: {entry!r}."
            )
        name_of[entry[1]] = entry[0]
    names = [entry[0] for entry in named]
    repeated = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) != len(names) else []
    if repeated:
        raise InvalidArgumentError(
            f"named_parameters holds the same name more than once: {', '.join(repeated)}. Names must differ."
        )
    listed = list(keys)
    nameless = sum(1 for key in listed if key not in name_of)
    if nameless:
        raise InvalidArgumentError(
            f"named_parameters lacks {nameless} of the optimizer's {len(listed)} parameters; name all of them, "
            "or give no names at all."
        )
    return [(key, name_of[key]) for key in listed]
