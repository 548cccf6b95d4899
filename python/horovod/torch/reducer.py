"""Between the parameters of an optimizer and the core's `GradientReducer`: hooks, reading and writing gradients, their
place in memory.

One `GradientAccess` belongs to one distributed optimizer. It knows torch's ways with gradients (none yet, sparse,
strange strides, replaced by the user); when something is submitted, and in which company, is decided in
`horovod._core.training.reducer`.
"""

from __future__ import annotations

import dataclasses
import functools
import warnings
import weakref
from collections.abc import Sequence
from typing import Any, Callable, Optional, Union

import torch
from torch.compiler import is_compiling
from torch.utils.weak import WeakTensorKeyDictionary

from horovod._core.callers import users_level
from horovod._core.errors import InvalidArgumentError
from horovod._core.life import session
from horovod._core.life.process_sets import ProcessSet
from horovod._core.tensors.compression import Compressor, NoneCompressor, kind_of
from horovod._core.training.reducer import GradientReducer, GradientSource, ReductionOptions
from horovod.torch.graphs import outside_graphs
from horovod.torch.layout import dense_view
from horovod.torch.operators import collectives
from horovod.torch.optimizer_names import OptimizerNames
from horovod.torch.resident import GradientHome, resident_possible, wants_home
from horovod.torch.sparse import sparse_allreduce_async
from horovod.torch.versions import increment_versions

__all__ = ["GradientAccess", "Groups"]

Groups = Union[None, int, Sequence[Sequence[torch.Tensor]]]

# The hook of the optimizer that took up a parameter last. An earlier one hands the gradient over no more when it is
# ready, but at its `synchronize`, if that ever comes: on some ranks it may be gone, on others wait for the collector.
_hook_of: Any = WeakTensorKeyDictionary()


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
        self._groups = _numbered(groups, names)
        self._sparse_as_dense = sparse_as_dense
        members = options.process_set
        self.active = bool(members.included()) and ((members.size() or 1) > 1 or chosen.elastic)
        compressed = kind_of(options.compression) is not NoneCompressor
        self._homes_wanted = chosen.resident_gradients and not compressed and resident_possible()
        self._session = session.current
        # One reducer for the parameters known at the start, one more for each later batch of them.
        self._reducers: list[GradientReducer] = []
        self._batches: list[list[int]] = []
        self._ready: dict[int, Callable[[Any], None]] = {}
        self._ready_again: dict[int, Callable[[Any, Any], bool]] = {}
        self._homes: dict[int, GradientHome] = {}
        self._frozen: list[int] = []
        # Numbers of parameters whose last gradient was sparse -> its sparse dimensions.
        self._sparse_dims: dict[int, int] = {}
        self._expected_sparse_dims: Optional[int] = None
        # Dense gradients under way, by parameter's number: the tensor that the parameter had, its address, and a tensor
        # of our own, of the same strides, that the result is going to be in, and whether that is a copy.
        self._sent: dict[int, tuple[torch.Tensor, int, torch.Tensor, bool]] = {}
        # With sparse_as_dense: the dense forms of sparse gradients, while they are being reduced.
        self._dense_forms: dict[int, torch.Tensor] = {}
        # The first gradient of this step that is under way: parameter's number, the tensor's id and version.
        self._watched: Optional[tuple[int, int, int]] = None
        self._hooks: list[Any] = []
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
            if number in self._ready:
                continue
            if parameter.requires_grad:
                fresh.append(number)
            else:
                self._frozen.append(number)
        if fresh:
            self._add_reducer(fresh, self._groups if not self._reducers else None)
            for number in fresh:
                parameter = self._names.parameters[number]
                if self._homes_wanted and wants_home(parameter):
                    self._homes[number] = GradientHome()
                hook = functools.partial(_on_gradient, weakref.ref(self), number, self._homes.get(number))
                register: Any = parameter.register_post_accumulate_grad_hook
                earlier, _hook_of[parameter] = _hook_of.get(parameter), register(hook)
                if earlier is not None:
                    earlier.remove()
                self._hooks.append(_hook_of[parameter])

    def rename(self) -> None:
        """After a change of the names' scope. Nothing may be pending."""
        batches, self._batches, self._reducers = self._batches, [], []
        for index, numbers in enumerate(batches):
            self._add_reducer(numbers, self._groups if index == 0 else None)

    def _add_reducer(self, numbers: list[int], groups: Any) -> None:
        reducer = self._make_reducer(numbers, groups)
        self._reducers.append(reducer)
        self._batches.append(numbers)
        self._ready.update(dict.fromkeys(numbers, reducer.ready))
        self._ready_again.update(dict.fromkeys(numbers, reducer.ready_again))

    def _make_reducer(self, numbers: list[int], groups: Any) -> GradientReducer:
        names = self._names
        parameters = [(number, names.engine_name(names.name(number))) for number in numbers]
        return GradientReducer(collectives, parameters, _source(weakref.ref(self)), self._options, groups)

    # ---- work

    def synchronize(self) -> None:
        """Submits what is missing and waits for everything. Collective."""
        if not self.active:
            return
        self.follow_session()
        self._tell_changes()
        changed: list[torch.Tensor] = []
        if self._frozen and any(self._names.parameters[number].requires_grad for number in self._frozen):
            self.attach()
        try:
            for reducer in self._reducers:
                reducer.synchronize()
            self._make_sparse_again()
            changed = self._deliver()
        finally:
            self._dense_forms.clear()
            self._sent.clear()
        _tell_autograd(changed)

    def watch(self, number: int) -> None:
        """Remembers what the gradient was when it was submitted, if it was."""
        grad = self._names.parameters[number].grad
        if grad is not None and any(reducer.pending for reducer in self._reducers):
            self._watched = number, id(grad), grad._version

    def _tell_changes(self) -> None:
        """Warns if the gradients have been changed while they were under way, as by clipping."""
        watched, self._watched = self._watched, None
        if watched is None:
            return
        number, identity, version = watched
        grad = self._names.parameters[number].grad
        if grad is not None and id(grad) == identity and grad._version != version:
            _warn(self._names.name(number), "changed", "so that ranks may hold different ones now")

    def _deliver(self) -> list[torch.Tensor]:
        """Gives the results to parameters that have other gradients now than those that were submitted, and to
        gradients that a copy was submitted of.

        Returns:
            The gradients that the engine has written.
        """
        told = False
        parameters = self._names.parameters
        written: list[torch.Tensor] = []
        for number, (given, address, own, is_copy) in self._sent.items():
            parameter = parameters[number]
            grad = parameter.grad
            if grad is given and given.data_ptr() == address:
                written.append(given)
                if not is_copy:
                    continue
            elif not told:
                told = True
                name = self._names.name(number)
                _warn(name, "replaced", "so that the new one is lost: the reduced one has taken its place")
            if grad is not None and grad.shape == own.shape and grad.layout is torch.strided and 0 not in grad.stride():
                grad.detach().copy_(own)
            else:
                parameter.grad = own.detach() if is_copy or given.data_ptr() != address else given
        return written

    def settle(self) -> None:
        """Ends a step that has begun: waits for what is under way. The next `synchronize` does not reduce it again."""
        has_begun = self.pending
        settled = [reducer.settle(has_begun) for reducer in self._reducers]  # all of them, also after a failure
        if all(settled):
            self._make_sparse_again()
            _tell_autograd(self._deliver())
        self._forget()

    def forget_settled(self) -> None:
        """The gradients hold something else now than what `settle` has reduced."""
        for reducer in self._reducers:
            reducer.forget_settled()

    def _forget(self) -> None:
        self._dense_forms.clear()
        self._sent.clear()
        self._watched = None

    def follow_session(self) -> None:
        """After a shutdown and another `init`: what was under way is lost."""
        if self._session is not session.current:
            self._session = session.current
            for reducer in self._reducers:
                reducer.reset()
            self._forget()

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
        if grad is None:
            sparse_dims = self._sparse_dims.get(number, self._expected_sparse_dims)
            grad = parameter.grad = _nothing(parameter, sparse_dims)
        home = self._homes.get(number)
        if home is not None and grad is home.view and grad.data_ptr() == home.address:
            resident, contiguous = home.tensors
            self._sent[number] = grad, home.address, resident, False
            return contiguous
        if grad.layout is not torch.strided:
            self._sparse_dims[number] = grad.sparse_dim()
            if not self._sparse_as_dense:
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
        parameter = self._names.parameters[number]
        if reduced.layout is not torch.strided:
            parameter.grad = reduced
            return
        sent = self._sent.get(number)
        target = dense_view(sent[2] if sent is not None else self._dense_forms[number])
        if target is not None:  # always: both are dense
            target.copy_(reduced)

    def _make_sparse_again(self) -> None:
        """Gives parameters of sparse gradients, which were reduced as dense ones, sparse gradients."""
        for number, dense in self._dense_forms.items():
            self._names.parameters[number].grad = dense.to_sparse(self._sparse_dims[number])

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


def _tell_autograd(written: Sequence[torch.Tensor]) -> None:
    """The engine has written behind its back."""
    if written:
        increment_versions(written)


def _warn(name: str, how: str, consequence: str) -> None:
    warnings.warn(
        f"The gradient of '{name}' was {how} after backward(), while it was being reduced, {consequence}. Call "
        "optimizer.synchronize() before gradients are clipped or unscaled, and step within "
        "optimizer.skip_synchronize().",
        stacklevel=users_level(),
    )


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
    # No variable may hold the gradient: `take_in` counts who does.
    if home is not None and parameter.grad is not home.view and parameter.grad is not None:
        home.take_in(parameter)
    if home is not None or not access.send_again(number, parameter):
        access._ready[number](number)
    if access._watched is None:
        access.watch(number)


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


def _remove(hooks: list[Any]) -> None:
    for hook in hooks:
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
