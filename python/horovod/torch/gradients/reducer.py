"""Between the parameters of an optimizer and the core's `GradientReducer`: hooks, reading and writing gradients, their
place in memory.

One `GradientAccess` belongs to one distributed optimizer. It knows torch's ways with gradients (none yet, sparse,
strange strides, replaced by the user); when something is submitted, and in which company, is decided in
`horovod._core.training.reducer`. After `backward()` a program sees reduced gradients only:
those still under way are replaced by tensors that wait when they are used (`pending`, design 0026).
"""

from __future__ import annotations

import dataclasses
import functools
import threading
import weakref
from collections.abc import Collection
from typing import Any, Callable, Optional

import torch
from torch.compiler import is_compiling

from horovod._core.life import session
from horovod._core.life.process_sets import ProcessSet
from horovod._core.operations.sparse import SparseReduction
from horovod._core.tensors.compression import NoneCompressor, kind_of
from horovod._core.training.overlap import overlap_can_pay
from horovod._core.training.reducer import GradientReducer, GradientSource
from horovod._core.training.reduction_options import ReductionOptions
from horovod.torch.collectives import discards
from horovod.torch.collectives.operators import collectives
from horovod.torch.collectives.sparse import sparse_allreduce_async
from horovod.torch.gradients.after_pass import AfterPass, EndOfPass, call_after_pass, pass_number
from horovod.torch.gradients.default_check import AccessCheck
from horovod.torch.gradients.gathered import NO_PASS, GatheredGradients, gathered_bytes, send_again, submit_gathered
from horovod.torch.gradients.handover import Handover
from horovod.torch.gradients.hooks import Ledger, is_elsewhere, put_hook, take_back_hooks
from horovod.torch.gradients.layout import dense_view, in_order_of, part_gradients
from horovod.torch.gradients.optimizer_names import Groups, OptimizerNames
from horovod.torch.gradients.pass_count import PassCount
from horovod.torch.gradients.resident import GradientHome, resident_possible, wants_home
from horovod.torch.gradients.under_way import UnderWay
from horovod.torch.graphs import outside_graphs

__all__ = ["GradientAccess"]


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
        self.names = names
        self.parameters = names.parameters
        self.options = options
        self.groups = names.numbered(groups)
        self.sparse_as_dense = sparse_as_dense
        self.active = _has_others(options.process_set)
        compressed = kind_of(options.compression) is not NoneCompressor
        self._homes_wanted = chosen.resident_gradients and not compressed and resident_possible()
        self._session = session.current
        # One reducer for the parameters known at the start, one more for each later batch of them.
        self.reducers: list[GradientReducer] = []
        self.batches: list[list[int]] = []
        self.reducer_of: dict[int, GradientReducer] = {}
        self._homes: dict[int, GradientHome] = {}
        self._frozen: list[int] = []
        self._expected_sparse_dims: Optional[int] = None
        self.under_way = UnderWay(self.parameters, self._homes)
        self.waits_for_held = True  # see `after_pass`
        # Held where results are taken, so that a thread of the program that looks at gradients, and the one that steps,
        # do not take them from each other. With it a thread waits for others only after it has submitted everything.
        self.lock = threading.RLock()
        self.discards_seen = -1  # see `discards`
        self.pass_count = PassCount()
        self.settled_early = False  # `settle` has ended the step, and nothing has used it since
        self._pass = NO_PASS  # autograd's number of the last one
        self._in_a_later_pass = False  # of a step, or in one without a number
        self.deferred: list[int] = []  # accumulated in this pass, and submitted at its end: hooks of the program follow
        self.gathered = GatheredGradients(overlap_can_pay(session.require()))
        terms = (options.op, options.gradient_predivide_factor, kind_of(options.compression), sparse_as_dense)
        self.ledger = Ledger(self, (*terms, options.process_set.process_set_id))
        self.hooks: dict[int, Any] = {}
        self.check = None if options.row.directions else AccessCheck(weakref.proxy(self))
        self.handover = Handover(self)
        weakref.finalize(self, _remove, self.hooks)

    # ---- options

    @property
    def passes(self) -> int:
        """How many times a gradient is accumulated before it is reduced."""
        return self.reducers[0].backward_passes_per_step if self.reducers else self.options.backward_passes_per_step

    def set_passes(self, passes: int) -> None:
        """Changes that number, from the next gradient on."""
        self.options = dataclasses.replace(self.options, backward_passes_per_step=passes)
        for reducer in self.reducers:
            reducer.set_backward_passes_per_step(passes)

    def expect_sparse(self) -> None:
        """Gradients are sparse, in their rows, also those of parameters that have not had one yet."""
        self._expected_sparse_dims = 1

    @property
    def step_has_begun(self) -> bool:
        """True between the first gradient that was submitted and the end of `synchronize`."""
        self.follow_session()
        return any(reducer.step_has_begun for reducer in self.reducers)

    # ---- hooks

    def attach(self, has_new: bool = True) -> None:
        """Puts hooks on all parameters that need a gradient and have none yet. Frozen ones are looked at again before
        and after every pass and step.

        Args:
            has_new: False: there may only be parameters that were frozen when this was called last.
        """
        if not self.active or not (has_new or any(self.parameters[number].requires_grad for number in self._frozen)):
            return
        fresh: list[int] = []
        self._frozen = []
        for number, parameter in enumerate(self.parameters):
            if number in self.reducer_of:
                continue
            if parameter.requires_grad:
                fresh.append(number)
            else:
                self._frozen.append(number)
        if fresh:
            self.handover.take_over(fresh)
            self._add_reducer(fresh, self.groups if not self.reducers else None)
            for number in fresh:
                parameter = self.parameters[number]
                if self._homes_wanted and wants_home(parameter):
                    self._homes[number] = GradientHome()
                self.put_hook(number)

    def put_hook(self, number: int) -> None:
        """Has a parameter hand its gradient to this optimizer, and to no other."""
        parameter = self.parameters[number]
        home = self._homes.get(number)
        nbytes = gathered_bytes(parameter) if home is None else 0
        hook: Any = functools.partial(_on_gradient, weakref.ref(self), self.gathered, number, home, nbytes)
        hook.kept = self.handover.kept
        self.hooks[number] = put_hook(parameter, self.ledger, hook)

    def rename(self) -> None:
        """After a change of the names' scope. Nothing may be pending."""
        batches, self.batches, self.reducers = self.batches, [], []
        for index, numbers in enumerate(batches):
            self._add_reducer(numbers, self.groups if index == 0 else None)

    def _add_reducer(self, numbers: list[int], groups: Any) -> None:
        reducer = self._make_reducer(numbers, groups)
        self.reducers.append(reducer)
        self.batches.append(numbers)
        self.reducer_of.update(dict.fromkeys(numbers, reducer))

    def _make_reducer(self, numbers: list[int], groups: Any) -> GradientReducer:
        names = self.names
        parameters = [(number, names.negotiated(number)) for number in numbers]
        made = GradientReducer(collectives, parameters, _source(weakref.ref(self)), self.options, groups)
        if self.check is not None:
            made.before_first = self.check.begin
        return made

    # ---- work

    def synchronize(self) -> None:
        """Submits what is missing and waits for everything. Collective."""
        self.follow_session()
        if not self.active:
            return
        self.settled_early = False
        if self._frozen:
            self.attach(has_new=False)
        if self.handover.earlier:
            reduced = self.handover.end_earlier()  # and no gradient has been computed since
            for reducer in self.reducers:
                reducer.leave_out(reduced)
        if self.ledger.has_lost:
            take_back_hooks(self)
        self.forget_unsent()
        self.pass_count.end_step(self)
        part_gradients(self.parameters[number] for number in self.missing())
        if self.check is not None:
            self.check.confirm(submit=True)
        try:
            _wait_for_each(self, lambda reducer: reducer.synchronize(once=True))
        finally:
            self.handover.end_step()
        self.ledger.reduce(self.parameters)

    def land(self, numbers: Optional[Collection[int]] = None) -> None:
        """Waits for the gradients under way, or some of them; the step goes on.

        Raises:
            HorovodError: as `synchronize`, which raises it once more.
        """
        if self.check is not None:
            self.check.confirm(numbers)
        _wait_for_each(self, lambda reducer: reducer.land(numbers), numbers)

    def ends_pass(self) -> bool:
        """Called when autograd has ended a backward pass. True if gradients are under way."""
        if self._session is not session.current:
            self.forget_unsent()
            return False
        submit_gathered(self, waits=True)
        while self.deferred:
            self.ready(self.deferred.pop())
        if self._frozen:
            self.attach(has_new=False)  # what has no hook yet counts as left out
        if any(reducer.is_open for reducer in self.reducers):
            return True
        if self.gathered.of_pass == self._pass and any(reducer.step_has_begun for reducer in self.reducers):
            return bool(self.missing())  # all that this pass has computed is reduced
        return self.pass_count.is_last(self)

    def begin_pass(self, reference: weakref.ref[GradientAccess]) -> None:
        """Called by the first hook of a backward pass."""
        self.follow_session()
        self.handover.begin_pass()
        self._pass = pass_number()
        self.pass_count.begin()
        self.ledger.is_fresh = False
        if self._pass >= 0:
            call_after_pass(EndOfPass(reference))
        submit_gathered(self)  # of a pass that this one is inside of
        self._in_a_later_pass = bool(self.under_way.stand_ins) or self._pass < 0
        is_first = not (self._in_a_later_pass or any(each.step_has_begun for each in self.reducers))
        self.gathered.of_pass = self._pass if is_first else NO_PASS

    def defers(self, number: int, parameter: Any) -> bool:
        """True if hooks of the program come next, and may change a gradient, which is submitted at the end of the pass
        then."""
        if self._pass < 0 or next(reversed(parameter._post_accumulate_grad_hooks)) == self.hooks[number].id:
            return False
        self.deferred.append(number)
        return True

    send_again = send_again  # a method, which Adasum's access replaces

    def forget_unsent(self) -> None:
        """Forgets the gradients that were accumulated and not submitted; they count as left out."""
        self.deferred.clear()
        self.gathered.take()

    def missing(self) -> list[Any]:
        """The numbers of the parameters that this rank has left out of a step that has begun."""
        return [number for reducer in self.reducers for number in reducer.missing]

    def zero_gradient(self, number: int) -> torch.Tensor:
        """The contribution of such a parameter if it has no gradient."""
        sparse_dims = self.under_way.sparse_dims.get(number, self._expected_sparse_dims)
        return _zero_gradient(self.parameters[number], sparse_dims)

    def settle(self) -> None:
        """Ends a step that has begun: waits for what is under way. The next `synchronize` does not reduce it again."""
        self.handover.end_earlier()
        has_begun = self.step_has_begun
        if has_begun and self.check is not None:
            self.check.confirm(submit=True)
        self.forget_unsent()
        if has_begun:
            self.pass_count.reset()
        with self.lock:
            settled = [reducer.settle(has_begun) for reducer in self.reducers]  # all of them, also after a failure
            if all(settled):
                self.under_way.deliver()
                self.settled_early = self.settled_early or has_begun
            else:
                self.under_way.forget()
        self.handover.end_step()

    def forget_settled(self) -> None:
        """The gradients have changed since `settle` reduced them: the next `synchronize` reduces them again."""
        self.settled_early = False
        for reducer in self.reducers:
            reducer.forget_settled()

    def follow_session(self) -> None:
        """After a shutdown and another `init`: what was under way is lost."""
        if self._session is not session.current:
            self._session = session.current
            for reducer in self.reducers:
                reducer.reset()
            self.under_way.forget()
            self.handover.end_step()
            if self._session is not None:
                self.gathered.set_overlaps(overlap_can_pay(self._session))
            if not self.active and self._session is not None and _has_others(self.options.process_set):
                self.active = True
                self.attach()
        if self.discards_seen != discards.changes():
            discards.follow(self)

    def ready(self, number: int) -> None:
        """Called when autograd has accumulated a gradient.

        Raises:
            AssertionError: in memory that the engine uses.
        """
        if self._pass < 0:
            self.follow_session()  # `begin_pass` has not been called for each of these
            self.pass_count.begin()
        reducer = self.reducer_of[number]
        sent = self.under_way.sent.get(number)
        if sent is not None and self.parameters[number].grad is sent[0]:
            raise AssertionError(
                f"The gradient of '{self.names.name(number)}' was computed twice in one backward pass, as reentrant "
                "checkpoints do with a parameter that several of them use. Use torch.utils.checkpoint with "
                "use_reentrant=False."
            )
        # Or the program has discarded a stand-in.
        if reducer.has_submitted(number) or number in self.under_way.stand_ins:
            _wait_for_each(self, lambda each: each.end_round(number, begins_next=True))
            self.pass_count.passes = 1
        reducer.ready(number)
        if self._pass < 0 and number in self.under_way.sent:
            self.under_way.stand_in(number, AfterPass(self))  # nothing is called when a compiled pass ends

    def _read(self, number: int) -> torch.Tensor:
        parameter = self.parameters[number]
        grad = parameter.grad
        if number in self.under_way.stand_ins:
            # The program may have put something else there, which it keeps; the others get what this rank computed.
            grad = self.under_way.take_away(number)
        elif grad is None:
            grad = parameter.grad = self.zero_gradient(number)
        home = self._homes.get(number)
        if home is not None and grad is home.view and grad.data_ptr() == home.address:
            resident, contiguous = home.tensors
            self.under_way.sent[number] = grad, home.address, resident, False
            return contiguous
        if grad.layout is not torch.strided:
            self.under_way.sparse_dims[number] = grad.sparse_dim()
            self.under_way.sent[number] = grad, 0, None, False
            if not self.sparse_as_dense:
                return grad
            dense = self.under_way.dense_forms[number] = grad.to_dense()
            return dense
        # A tensor of our own keeps the memory alive, whatever becomes of the gradient meanwhile.
        own, flat, is_copy = in_order_of(parameter, grad)
        self.under_way.sent[number] = grad, grad.data_ptr(), own, is_copy
        return flat

    def _write(self, number: int, reduced: torch.Tensor) -> None:
        if reduced.layout is not torch.strided:
            self.under_way.give(number, reduced)
            return
        own = self.under_way.sent[number][2]
        target = dense_view(own if own is not None else self.under_way.dense_forms[number])
        if target is not None:  # always: both are dense
            target.copy_(reduced)

    def _sparse(self, tensor: torch.Tensor, name: str) -> SparseReduction:
        own = tensor.detach().coalesce()
        values, context = self.options.compression.compress(own.values())
        sent = torch.sparse_coo_tensor(own.indices(), values, own.shape, check_invariants=False, is_coalesced=True)
        wait = sparse_allreduce_async(sent, name, self.options.op, self.options.process_set)
        decompress = self.options.compression.decompress

        def finish() -> torch.Tensor:
            got = wait()
            return torch.sparse_coo_tensor(
                got.indices(), decompress(got.values(), context), got.shape, check_invariants=False, is_coalesced=True
            )

        return dataclasses.replace(wait, finish=finish)


def _has_others(members: ProcessSet) -> bool:
    """True if this rank has somebody to reduce gradients with, or may get."""
    return bool(members.included()) and ((members.size() or 1) > 1 or session.require().settings.elastic)


def _wait_for_each(
    access: GradientAccess, wait: Callable[[GradientReducer], None], numbers: Optional[Collection[int]] = None
) -> None:
    """Waits for all reducers, also after one has failed, and delivers what has been reduced."""
    failures: list[Exception] = []
    with access.lock:
        try:
            for reducer in access.reducers:
                try:
                    wait(reducer)
                except Exception as error:
                    failures.append(error)
            if failures:
                raise failures[0]
        except BaseException:
            access.under_way.forget(numbers)
            raise
        access.under_way.deliver(numbers)


def _zero_gradient(parameter: torch.Tensor, sparse_dims: Optional[int]) -> torch.Tensor:
    """The contribution of a parameter without a gradient. sparse_dims: of the gradients that it is known to have; None:
    dense ones."""
    if sparse_dims is None:
        return torch.zeros_like(parameter, requires_grad=False)
    indices = torch.empty((sparse_dims, 0), dtype=torch.int64, device=parameter.device)
    values = torch.empty((0, *parameter.shape[sparse_dims:]), dtype=parameter.dtype, device=parameter.device)
    return torch.sparse_coo_tensor(indices, values, parameter.shape, check_invariants=False)


def _on_gradient(
    reference: weakref.ref[GradientAccess],
    gathered: GatheredGradients,
    number: int,
    home: Optional[GradientHome],
    nbytes: int,
    parameter: Any,
) -> None:
    """Autograd calls this, with the last argument, when it has accumulated a gradient."""
    # A compiled backward pass must not trace into the engine.
    if is_compiling():
        _on_gradient_outside_graphs(reference, gathered, number, home, nbytes, parameter)
        return
    number_of_pass = pass_number()
    has_followers = len(parameter._post_accumulate_grad_hooks) > 1
    if 0 < nbytes < gathered.limit and gathered.of_pass == number_of_pass and not has_followers:
        if gathered.add(number, nbytes) and (access := reference()) is not None:
            submit_gathered(access)
        return
    access = reference()
    if access is None:
        return
    if access._session is not session.current:
        access.follow_session()
    if number_of_pass != access._pass or number_of_pass < 0:
        if access.handover.is_retired:
            return
        access.begin_pass(reference)
    if has_followers and access.defers(number, parameter):
        return
    if 0 < nbytes < gathered.limit and gathered.of_pass == number_of_pass:
        if gathered.add(number, nbytes):
            submit_gathered(access)
        return
    # No variable may hold the gradient: `take_in` counts who does.
    if home is not None and parameter.grad is not home.view and parameter.grad is not None:
        home.take_in(parameter)
    if home is not None or access._in_a_later_pass or not access.send_again([number]):
        access.ready(number)


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

    def sparse(tensor: torch.Tensor, name: str) -> Optional[SparseReduction]:
        return None if tensor.layout is torch.strided else access()._sparse(tensor, name)

    def called(number: Any) -> str:
        return access().names.name(number)

    def elsewhere(number: Any) -> bool:
        found = access()
        return is_elsewhere(found.parameters[number], found.ledger)

    return GradientSource(read, write, sparse, called, elsewhere)


def _remove(hooks: dict[int, Any]) -> None:
    for hook in hooks.values():
        hook.remove()
