"""Between the parameters of an optimizer and the core's `GradientReducer`: hooks, reading and writing gradients, their
place in memory.

One `GradientAccess` belongs to one distributed optimizer. It knows torch's ways with gradients (none yet, sparse,
strange strides, replaced by the user); when something is submitted, and in which company, is decided in
`horovod._core.training.reducer`. What the program does to gradients after `backward()` it does to reduced ones: those
that are under way by then are replaced by tensors that wait when they are used (`pending`, design 0025).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import warnings
import weakref
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Callable, Optional, Union

import torch
from torch.compiler import is_compiling

from horovod._core.callers import users_level
from horovod._core.errors import InvalidArgumentError
from horovod._core.life import handles, session
from horovod._core.life.process_sets import ProcessSet
from horovod._core.tensors.compression import Compressor, NoneCompressor, kind_of
from horovod._core.training.reducer import GradientReducer, GradientSource, ReductionOptions
from horovod.torch.graphs import outside_graphs
from horovod.torch.hooks import Ledger, put_hook, taker_of
from horovod.torch.layout import dense_view
from horovod.torch.operators import collectives
from horovod.torch.optimizer_names import OptimizerNames
from horovod.torch.pending import FRESH, PendingGradient, pending_gradient, uses_of
from horovod.torch.resident import GradientHome, resident_possible, wants_home
from horovod.torch.sparse import sparse_allreduce_async
from horovod.torch.versions import increment_versions

__all__ = ["GradientAccess", "Groups"]

Groups = Union[None, int, Sequence[Sequence[torch.Tensor]]]

# The number of autograd's running backward pass; -1: there is none, as in a compiled one.
_pass_number: Callable[[], int] = getattr(torch._C, "_current_graph_task_id", lambda: -1)
_HELD_S = 30.0
_call_after_pass: Any = torch.autograd.Variable._execution_engine.queue_callback


class GradientAccess:
    """Hands the gradients of an optimizer's parameters to reducers and takes the results back.

    Args:
        names: the parameters and their names.
        options: how to reduce.
        groups: number of groups, or lists of parameters.
        sparse_as_dense: reduce sparse gradients as dense ones.

    Raises:
        InvalidArgumentError: `groups` is neither.
    """

    def __init__(self, names: OptimizerNames, options: ReductionOptions, groups: Groups, sparse_as_dense: bool) -> None:
        chosen = session.require().settings
        self._names = names
        self._options = options
        self.groups = _numbered(groups, names)
        self.sparse_as_dense = sparse_as_dense
        members = options.process_set
        self.active = bool(members.included()) and ((members.size() or 1) > 1 or chosen.elastic)
        compressed = kind_of(options.compression) is not NoneCompressor
        self._homes_wanted = chosen.resident_gradients and not compressed and resident_possible()
        self._session = session.current
        # One reducer for the parameters known at the start, one more for each later batch of them.
        self._reducers: list[GradientReducer] = []
        self._batches: list[list[int]] = []
        self._reducer_of: dict[int, GradientReducer] = {}
        self._ready_again: dict[int, Callable[[Any, Any], bool]] = {}
        self._homes: dict[int, GradientHome] = {}
        self._frozen: list[int] = []
        # Numbers of parameters whose last gradient was sparse -> its sparse dimensions.
        self._sparse_dims: dict[int, int] = {}
        self._expected_sparse_dims: Optional[int] = None
        # Gradients under way, by parameter's number: the tensor that the parameter had, its address, and a tensor of
        # our own, of the same strides, that the result is going to be in (None: it will be another one, a sparse one),
        # and whether that is a copy.
        self._sent: dict[int, tuple[torch.Tensor, int, Optional[torch.Tensor], bool]] = {}
        # What the parameters have instead of gradients that are under way, or that this rank has left out.
        self._stand_ins: dict[int, PendingGradient] = {}
        self._pass = -1  # of the last hook
        self._waits_for_held = True
        self._deferred: list[int] = []  # accumulated in this pass, and submitted at its end
        # With sparse_as_dense: the dense forms of sparse gradients, while they are being reduced.
        self._dense_forms: dict[int, torch.Tensor] = {}
        terms = (options.op, options.gradient_predivide_factor, kind_of(options.compression), sparse_as_dense)
        self._ledger = Ledger(self, (*terms, members.process_set_id))
        self._seen: dict[Ledger, int] = {}  # other optimizers' reductions at our last one
        self._hooks: dict[int, Any] = {}
        weakref.finalize(self, _remove, self._hooks)

    # ---- options

    @property
    def options(self) -> ReductionOptions:
        """How gradients are reduced."""
        return self._options

    @property
    def process_set(self) -> ProcessSet:
        """The ranks that take part."""
        return self._options.process_set

    @property
    def compression(self) -> Compressor:
        """What gradients go through on their way."""
        return self._options.compression

    @property
    def passes(self) -> int:
        """How many times a gradient is accumulated before it is reduced."""
        return self._reducers[0].backward_passes_per_step if self._reducers else self._options.backward_passes_per_step

    def set_passes(self, passes: int) -> None:
        """Changes that number, from the next gradient on."""
        self._options = dataclasses.replace(self._options, backward_passes_per_step=passes)
        for reducer in self._reducers:
            reducer.set_backward_passes_per_step(passes)

    def expect_sparse(self) -> None:
        """Gradients are sparse, in their rows, also those of parameters that have not had one yet."""
        self._expected_sparse_dims = 1

    @property
    def pending(self) -> bool:
        """True while gradients are being reduced."""
        self.follow_session()
        return any(reducer.pending for reducer in self._reducers)

    # ---- hooks

    def attach(self) -> None:
        """Puts hooks on all parameters that need a gradient and have none yet. Frozen ones are looked at again at every
        `synchronize`."""
        if not self.active:
            return
        fresh: list[int] = []
        self._frozen = []
        for number, parameter in enumerate(self._names.parameters):
            if number in self._reducer_of:
                continue
            if parameter.requires_grad:
                fresh.append(number)
            else:
                self._frozen.append(number)
        if fresh:
            self._add_reducer(fresh, self.groups if not self._reducers else None)
            for number in fresh:
                parameter = self._names.parameters[number]
                if self._homes_wanted and wants_home(parameter):
                    self._homes[number] = GradientHome()
                self._put_hook(number)

    def _put_hook(self, number: int) -> None:
        hook = functools.partial(_on_gradient, weakref.ref(self), number, self._homes.get(number))
        self._hooks[number] = put_hook(self._names.parameters[number], self._ledger, hook)

    def rename(self) -> None:
        """After a change of the names' scope. Nothing may be pending."""
        batches, self._batches, self._reducers = self._batches, [], []
        for index, numbers in enumerate(batches):
            self._add_reducer(numbers, self.groups if index == 0 else None)

    def _add_reducer(self, numbers: list[int], groups: Any) -> None:
        reducer = self._make_reducer(numbers, groups)
        self._reducers.append(reducer)
        self._batches.append(numbers)
        self._reducer_of.update(dict.fromkeys(numbers, reducer))
        self._ready_again.update(dict.fromkeys(numbers, reducer.ready_again))

    def _make_reducer(self, numbers: list[int], groups: Any) -> GradientReducer:
        names = self._names
        parameters = [(number, names.negotiated(number)) for number in numbers]
        return GradientReducer(collectives, parameters, _source(weakref.ref(self)), self._options, groups)

    # ---- work

    def synchronize(self) -> None:
        """Submits what is missing and waits for everything. Collective."""
        if not self.active:
            return
        self.follow_session()
        if self._frozen and any(self._names.parameters[number].requires_grad for number in self._frozen):
            self.attach()
        if self._ledger.has_lost:
            self._share()
        with self._landing():
            for reducer in self._reducers:
                reducer.synchronize(once=True)
        self._ledger.reductions += 1

    def land(self, numbers: Optional[Collection[int]] = None) -> None:
        """Waits for the gradients under way, or some of them; the step goes on.

        Raises:
            HorovodError: as `synchronize`, which raises it once more.
        """
        with self._landing(numbers):
            failures: list[Exception] = []
            for reducer in self._reducers:  # all of them, also after a failure
                try:
                    reducer.land(numbers)
                except Exception as error:
                    failures.append(error)
            if failures:
                raise failures[0]

    @contextlib.contextmanager
    def _landing(self, numbers: Optional[Collection[int]] = None) -> Iterator[None]:
        """Lets the gradients, or some, have the results of what is waited for within. After a failure they hold
        anything."""
        written: list[torch.Tensor] = []
        try:
            yield
            written = self._deliver(numbers)
        finally:
            self._forget(numbers)
        if written:
            increment_versions(written)  # the engine has written behind autograd's back

    def _deliver(self, numbers: Optional[Collection[int]]) -> list[torch.Tensor]:
        """Completes gradients that a copy was submitted of, and takes stand-ins away. What the program has put in the
        place of a gradient is left alone.

        Returns:
            The gradients that the engine has written.
        """
        written: list[torch.Tensor] = []
        for number, dense in self._dense_forms.items():
            if numbers is None or number in numbers:
                self._give(number, dense.to_sparse(self._sparse_dims[number]))
        self._take_stand_ins_away(numbers)
        for number in self._sent if numbers is None else self._sent.keys() & set(numbers):
            given, address, own, is_copy = self._sent[number]
            if own is not None and self._names.parameters[number].grad is given and given.data_ptr() == address:
                written.append(given)
                if is_copy:
                    given.detach().copy_(own)
        return written

    def _give(self, number: int, reduced: torch.Tensor) -> None:
        """Gives a parameter another tensor for the gradient that was submitted, unless the program has."""
        stand_in = self._stand_ins.get(number)
        if stand_in is not None:
            stand_in.given = reduced
        elif self._names.parameters[number].grad is self._sent[number][0]:
            self._names.parameters[number].grad = reduced

    def _share(self) -> None:
        """Another optimizer has some of our parameters too, and their hooks: takes what it has reduced or submitted,
        and the hooks."""
        lost: dict[Ledger, list[int]] = {}
        for number in self._hooks:
            taker = taker_of(self._names.parameters[number])
            if taker is not self._ledger:
                lost.setdefault(taker, []).append(number)
        for taker, numbers in lost.items():
            if taker.terms != self._ledger.terms:
                raise InvalidArgumentError(
                    f"The gradient of '{self._names.name(numbers[0])}' is reduced by another DistributedOptimizer, "
                    "which was made or has stepped after this one and has another op, compression or process set. "
                    "Give both the same, or keep one optimizer for each parameter."
                )
            other = taker.access()
            if other is not None and other.pending:
                reduced = other.hand_over([self._names.parameters[number] for number in numbers])
            else:
                reduced = [taker.reductions > self._seen.get(taker, 0)] * len(numbers)
            self._settle_alone(number for number, is_reduced in zip(numbers, reduced) if is_reduced)
            self._seen[taker] = taker.reductions
            for number in numbers:
                self._put_hook(number)
        self._ledger.has_lost = False

    def hand_over(self, parameters: Sequence[torch.Tensor]) -> list[bool]:
        """Another optimizer steps with these: waits for what is under way, and leaves the rest of these to it.

        Returns:
            Which of them have been reduced.
        """
        self.land()
        numbers = self._names.numbers_of(parameters)
        reduced = [self._reducer_of[number].has_submitted(number) for number in numbers]
        self._settle_alone(numbers)
        return reduced

    def _settle_alone(self, numbers: Iterable[int]) -> None:
        listed = list(numbers)
        for reducer in self._reducers:
            reducer.settle_alone(listed)

    # ---- between backward() and step()

    def end_pass(self) -> None:
        """After a backward pass: delivers what has been reduced, or is in a moment, and lets stand-ins take the place
        of the rest, and of what this rank has left out."""
        deferred, self._deferred = self._deferred, []
        for number in deferred:
            self.ready(number)
        if self._session is not session.current or not any(reducer.is_open for reducer in self._reducers):
            return
        if self._lands_within(handles.BRIEF_S) or (self._waits_for_held and self._is_any_held() and self._land_held()):
            with self._landing():
                pass
        else:
            for number in self._sent:
                self.stand_in(number)
        for reducer in self._reducers:
            for number in reducer.missing:
                self._stand_in_for_missing(number)

    def defers(self, number: int, parameter: Any) -> bool:
        """True if hooks of the program come next, and the pass has an end where the gradient will be submitted."""
        if self._pass < 0 or next(reversed(parameter._post_accumulate_grad_hooks)) == self._hooks[number].id:
            return False
        self._deferred.append(number)
        return True

    def computed_again(self, number: int) -> None:
        """Autograd has accumulated a gradient again that is under way.

        Raises:
            AssertionError: in its memory, which the engine uses.
        """
        if self._names.parameters[number].grad is self._sent[number][0]:
            raise AssertionError(
                f"The gradient of '{self._names.name(number)}' was computed twice in one backward pass, as reentrant "
                "checkpoints do with a parameter that several of them use. Use torch.utils.checkpoint with "
                "use_reentrant=False."
            )

    def stand_in(self, number: int) -> None:
        """Lets a tensor that waits when it is used take the place of a gradient that is under way."""
        given = self._sent[number][0]
        if self._names.parameters[number].grad is given:
            self._put_stand_in(number, given)

    def _stand_in_for_missing(self, number: Any) -> None:
        parameter = self._names.parameters[number]
        if number in self._stand_ins or not parameter.requires_grad:
            return
        grad = parameter.grad
        if grad is None:
            grad = _nothing(parameter, self._sparse_dims.get(number, self._expected_sparse_dims))
        self._put_stand_in(number, grad)

    def _put_stand_in(self, number: int, grad: torch.Tensor) -> None:
        self._stand_ins[number] = self._names.parameters[number].grad = pending_gradient(grad, self, number)

    def submit(self, pending: PendingGradient) -> None:
        """A stand-in is used: if this rank has left the gradient out, submits what takes its place."""
        number = pending.number
        is_adding = _pass_number() >= 0  # autograd, the gradient of another pass
        if number in self._sent:
            if is_adding:
                self._reducer_of[number].end_round(number)
            return
        if self._stand_ins.get(number) is not pending:
            return
        if is_adding:
            self._take_stand_in_away(number)
            return
        self._reducer_of[number].submit(number)
        self._stand_ins.setdefault(number, pending)

    def wait_for(self, pending: PendingGradient) -> None:
        """A stand-in is used: waits for the gradient, also if the program has kept the stand-in of an earlier step."""
        sent = self._sent.get(pending.number)
        if sent is not None and sent[0] is pending.given:
            self.land((pending.number,))

    def _take_stand_ins_away(self, numbers: Optional[Collection[int]]) -> None:
        for number in list(self._stand_ins) if numbers is None else self._stand_ins.keys() & set(numbers):
            self._take_stand_in_away(number)

    def _take_stand_in_away(self, number: int) -> None:
        stand_in = self._stand_ins.pop(number)
        parameter = self._names.parameters[number]
        if parameter.grad is stand_in:
            parameter.grad = stand_in.given

    def _lands_within(self, timeout_s: float) -> bool:
        return all(reducer.land_within(timeout_s) for reducer in self._reducers)

    def _land_held(self) -> bool:
        """Waits for gradients that the program could look at without asking the parameters for them. Not for ever:
        ranks that have left out different ones would wait for each other."""
        if self._lands_within(_HELD_S):
            return True
        self._waits_for_held = False
        warnings.warn(
            f"A program that holds gradients outside of parameter.grad could use them too early: after {_HELD_S:g}"
            " s one has not been reduced, because a rank has not computed it. Use parameter.grad, which waits, or call "
            "optimizer.synchronize() before.",
            stacklevel=users_level(),
        )
        return False

    def _is_any_held(self) -> bool:
        return any(self._is_held(number) for number in self._sent)

    def _is_held(self, number: int) -> bool:
        """True if somebody else refers to a gradient under way, or to a view of its memory."""
        sent = self._sent[number]
        own, is_copy = sent[2], sent[3]
        home = self._homes.get(number)
        if home is not None and sent[0] is home.view:
            most = FRESH[0] + 1, home.uses
        else:
            views = 0 if is_copy or own is None else 1 if own.is_contiguous() else 2  # of our own
            most = FRESH[0], FRESH[1] + views
        references, uses = uses_of(sent)
        return references > most[0] or uses > most[1]

    def settle(self) -> None:
        """Ends a step that has begun: waits for what is under way. The next `synchronize` does not reduce it again."""
        has_begun = self.pending
        settled = [reducer.settle(has_begun) for reducer in self._reducers]  # all of them, also after a failure
        if all(settled):
            with self._landing():
                pass
        else:
            self._forget()

    def forget_settled(self) -> None:
        """The gradients hold something else now than what `settle` has reduced."""
        for reducer in self._reducers:
            reducer.forget_settled()

    def _forget(self, numbers: Optional[Collection[int]] = None) -> None:
        self._take_stand_ins_away(numbers)
        if numbers is None:
            self._deferred.clear()
            self._dense_forms.clear()
            self._sent.clear()
            return
        for number in numbers:
            self._dense_forms.pop(number, None)
            self._sent.pop(number, None)

    def follow_session(self) -> None:
        """After a shutdown and another `init`: what was under way is lost."""
        if self._session is not session.current:
            self._session = session.current
            for reducer in self._reducers:
                reducer.reset()
            self._forget()

    def ready(self, number: int) -> None:
        """Autograd has accumulated a gradient."""
        reducer = self._reducer_of[number]
        # Or the program has discarded a stand-in.
        if reducer.has_submitted(number) or number in self._stand_ins:
            with self._landing():
                reducer.begin_round(number)
        reducer.ready(number)

    def send_again(self, number: int, parameter: torch.Tensor) -> bool:
        """The short way for a gradient without a home that is contiguous and like the one before. False: nothing has
        been done."""
        grad: Any = parameter.grad
        if grad is None or grad.layout is not torch.strided or not grad.is_contiguous():
            return False
        own = grad.data
        if not self._ready_again[number](number, own):
            return False
        self._sent[number] = grad, own.data_ptr(), own, False
        return True

    def _read(self, number: int) -> torch.Tensor:
        parameter = self._names.parameters[number]
        grad = parameter.grad
        if number in self._stand_ins:
            # The program may have put something else there, which it keeps; the others get what this rank computed.
            grad = self._stand_ins[number].given
            self._take_stand_in_away(number)
        elif grad is None:
            sparse_dims = self._sparse_dims.get(number, self._expected_sparse_dims)
            grad = parameter.grad = _nothing(parameter, sparse_dims)
        home = self._homes.get(number)
        if home is not None and grad is home.view and grad.data_ptr() == home.address:
            resident, contiguous = home.tensors
            self._sent[number] = grad, home.address, resident, False
            return contiguous
        if grad.layout is not torch.strided:
            self._sparse_dims[number] = grad.sparse_dim()
            self._sent[number] = grad, 0, None, False
            if not self.sparse_as_dense:
                return grad
            dense = self._dense_forms[number] = grad.to_dense()
            return dense
        # A tensor of our own keeps the memory alive, whatever becomes of the gradient meanwhile.
        own = grad.data
        flat = own if own.is_contiguous() and not own.is_neg() else dense_view(own)
        is_copy = flat is None
        if flat is None:
            own = flat = own.resolve_neg().contiguous()
        self._sent[number] = grad, grad.data_ptr(), own, is_copy
        return flat

    def _write(self, number: int, reduced: torch.Tensor) -> None:
        if reduced.layout is not torch.strided:
            self._give(number, reduced)
            return
        own = self._sent[number][2]
        target = dense_view(own if own is not None else self._dense_forms[number])
        if target is not None:  # always: both are dense
            target.copy_(reduced)

    def _sparse(self, tensor: torch.Tensor, name: str) -> Callable[[], torch.Tensor]:
        own = tensor.detach().coalesce()
        values, context = self._options.compression.compress(own.values())
        sent = torch.sparse_coo_tensor(own.indices(), values, own.shape, check_invariants=False, is_coalesced=True)
        wait = sparse_allreduce_async(sent, name, self._options.op, self._options.process_set)
        decompress = self._options.compression.decompress

        def finish() -> torch.Tensor:
            got = wait()
            return torch.sparse_coo_tensor(
                got.indices(), decompress(got.values(), context), got.shape, check_invariants=False, is_coalesced=True
            )

        return finish


def _nothing(parameter: torch.Tensor, sparse_dims: Optional[int]) -> torch.Tensor:
    """What a parameter contributes that has no gradient. sparse_dims: of the gradients that it is known to have; None:
    dense ones."""
    if sparse_dims is None:
        return torch.zeros_like(parameter, requires_grad=False)
    indices = torch.empty((sparse_dims, 0), dtype=torch.int64, device=parameter.device)
    values = torch.empty((0, *parameter.shape[sparse_dims:]), dtype=parameter.dtype, device=parameter.device)
    return torch.sparse_coo_tensor(indices, values, parameter.shape, check_invariants=False)


def _on_gradient(
    reference: weakref.ref[GradientAccess], number: int, home: Optional[GradientHome], parameter: torch.Tensor
) -> None:
    """What autograd calls, by the last argument, when it has accumulated a gradient."""
    # A compiled backward pass must not trace into the engine.
    if is_compiling():
        _on_gradient_outside_graphs(reference, number, home, parameter)
        return
    access = reference()
    if access is None:
        return
    if access._session is not session.current:
        access.follow_session()
    current = _pass_number()
    if current != access._pass:
        access._pass = current
        if current >= 0:
            _call_after_pass(functools.partial(_after_pass, reference))
    if access._sent and number in access._sent:
        access.computed_again(number)
    if len(parameter._post_accumulate_grad_hooks) > 1 and access.defers(number, parameter):
        return
    # No variable may hold the gradient: `take_in` counts who does.
    if home is not None and parameter.grad is not home.view and parameter.grad is not None:
        home.take_in(parameter)
    if home is not None or access._stand_ins or not access.send_again(number, parameter):
        access.ready(number)
    if current < 0 and number in access._sent:
        access.stand_in(number)  # nothing is called when a compiled pass ends


def _after_pass(reference: weakref.ref[GradientAccess]) -> None:
    access = reference()
    if access is not None:
        access.end_pass()


# Not the hook itself: a disabled function takes half a microsecond longer, also where nothing is traced.
_on_gradient_outside_graphs: Callable[..., None] = outside_graphs(_on_gradient)


def _source(reference: weakref.ref[GradientAccess]) -> GradientSource:
    """The ways to and from gradients, for a reducer that must not keep the access alive: hooks end with it."""

    def access() -> GradientAccess:
        found = reference()
        if found is None:
            raise RuntimeError("A gradient reducer was used after its optimizer had gone.")
        return found

    def read(number: Any) -> torch.Tensor:
        found = reference()  # as in `access`, without another frame: this is called for each gradient
        return access()._read(number) if found is None else found._read(number)

    def write(number: Any, reduced: torch.Tensor) -> None:
        access()._write(number, reduced)

    def sparse(tensor: torch.Tensor, name: str) -> Optional[Callable[[], torch.Tensor]]:
        return None if tensor.layout is torch.strided else access()._sparse(tensor, name)

    def called(number: Any) -> str:
        return access()._names.name(number)

    return GradientSource(read, write, sparse, called)


def _remove(hooks: dict[int, Any]) -> None:
    for hook in hooks.values():
        hook.remove()


def _numbered(groups: Groups, names: OptimizerNames) -> Union[None, int, list[list[Any]]]:
    """The user's groups with the parameters' numbers in the place of the parameters; strangers are refused."""
    if groups is None or isinstance(groups, int):
        return groups
    numbered: list[list[Any]] = []
    for group in groups:
        numbers = []
        for entry in group:
            number = names.number_of(entry)
            if number is None:
                raise InvalidArgumentError(
                    f"groups holds a tensor of shape {list(entry.shape)} that is no parameter of this optimizer."
                )
            numbers.append(number)
        numbered.append(numbers)
    return numbered
