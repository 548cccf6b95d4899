"""`DistributedMethods`: the methods in which a distributed optimizer differs from the user's class.

Mixed in by `optimizer.DistributedOptimizer`. A hook per parameter hands each gradient over as soon as it has been
accumulated; `step` waits for the results. Counting, grouping, compression and submission are the core's
(`horovod._core.training.reducer`), the gradients' place in memory is `resident`'s, how they are read and written is
`reducer`'s.
"""

from __future__ import annotations

import contextlib
import warnings
import weakref
from collections.abc import Iterable, Iterator
from typing import Any, Callable, Optional

import torch

from horovod._core.callers import users_level
from horovod._core.life.process_sets import ProcessSet
from horovod._core.training.reduction_options import ReductionOptions
from horovod.torch.collectives.discards import discard_step
from horovod.torch.collectives.ops import allreduce_
from horovod.torch.gradients.after_pass import AfterPass
from horovod.torch.gradients.hooks import take_back_orphans
from horovod.torch.gradients.optimizer_names import Groups, OptimizerNames, Scope
from horovod.torch.gradients.parameter_check import after_step
from horovod.torch.gradients.reducer import GradientAccess
from horovod.torch.graphs import outside_graphs
from horovod.torch.optimizers.upstream_names import UpstreamNames

__all__ = ["DistributedMethods"]


class DistributedMethods(UpstreamNames, torch.optim.Optimizer):
    """The methods that a distributed optimizer has beside, or instead of, those of the user's class. Mixed in before
    it."""

    _access: GradientAccess
    _access_kind: type[GradientAccess] = GradientAccess
    _names: OptimizerNames
    _wrapped: torch.optim.Optimizer
    _synchronized: bool
    _should_synchronize: bool

    # ---- life

    def _begin(
        self,
        wrapped: torch.optim.Optimizer,
        names: OptimizerNames,
        options: ReductionOptions,
        groups: Groups,
        sparse_as_dense: bool,
    ) -> None:
        self._wrapped = wrapped
        self._names = names
        self._synchronized = False
        self._should_synchronize = True
        self._access = self._access_kind(names, options, groups, sparse_as_dense)
        if isinstance(wrapped, torch.optim.SparseAdam):
            # It takes no others. A rank without a gradient in the first step must not contribute a dense one.
            self._access.expect_sparse()
        self._access.attach()
        weakref.finalize(self, self._access.handover.retire).atexit = False
        _follow_loading(weakref.ref(self), wrapped)

    @staticmethod
    def find_duplicates(lst: Iterable[Any]) -> set[Any]:
        """The entries that occur more than once."""
        seen: set[Any] = set()
        return {entry for entry in lst if entry in seen or seen.add(entry)}  # type: ignore[func-returns-value]

    @property
    def backward_passes_per_step(self) -> int:
        """How many backward passes accumulate into a gradient before it is reduced."""
        return self._access.passes

    @backward_passes_per_step.setter
    def backward_passes_per_step(self, passes: int) -> None:
        self.set_backward_passes_per_step(passes)

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Changes how many backward passes accumulate into a gradient before it is reduced, from the next one on.

        Raises:
            InvalidArgumentError: not a positive integer.
        """
        self._access.set_passes(passes)

    @property
    def op(self) -> int:
        """How gradients are combined: Average, Sum, ..."""
        return self._access.options.op

    @property
    def process_set(self) -> ProcessSet:
        """The ranks that take part."""
        return self._access.options.process_set

    @property
    def gradient_predivide_factor(self) -> float:
        """The factor that splits the averaging; see `DistributedOptimizer`."""
        return self._access.options.gradient_predivide_factor

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As the user's class does it; accepts what a plain optimizer has saved. Gradients under way are waited for,
        with zeros for those that this rank has not computed."""
        self._access.settle()
        self._synchronized = False
        super().load_state_dict(state_dict)
        # Schedulers that were made before this wrapper hold the plain optimizer.
        _share(self, self._wrapped)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As the user's class does it; the new gradients are reduced too. Collective in its effect: all ranks must add
        equal groups."""
        self._access.follow_session()  # a copy begins here, before it has other parameters
        super().add_param_group(param_group)
        self._take_up_new()

    # ---- work

    @outside_graphs
    def synchronize(self) -> None:
        """Waits until all gradients are reduced. Collective. `step` does not reduce them again; another call does. A
        parameter without a gradient on this rank contributes zeros, and gets the result. Programs need not call it:
        reading or changing a gradient after `backward()` waits for it.

        Raises:
            MismatchError: the ranks disagree about a gradient.
            HorovodInternalError: a rank died, or the engine is shutting down.
        """
        self._take_up_new()
        self._access.forget_settled()
        self._access.synchronize()
        self._synchronized = True

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Within it `step` does not synchronize, because `synchronize` has been called already::

        optimizer.synchronize()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        with optimizer.skip_synchronize():
            optimizer.step()
        """
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    @outside_graphs
    def step(self, closure: Optional[Callable[[], Any]] = None, *args: Any, **kwargs: Any) -> Any:
        """Synchronizes the gradients (but see `skip_synchronize`), then steps as the user's class does.

        Collective.

        Args:
            closure: computes the loss and the gradients; the gradients are synchronized after each of its calls.

        Raises:
            MismatchError: the ranks disagree about a gradient.
            HorovodInternalError: a rank died, or the engine is shutting down.
            AssertionError: gradients are being reduced, within `skip_synchronize`.
        """
        if self._should_synchronize:
            if self._synchronized and (self._access.ledger.has_reduced or not self._access.active):
                # Programs filter upstream's warning by these words.
                warnings.warn(
                    "optimizer.step() called without optimizer.skip_synchronize() context after "
                    "optimizer.synchronize(). The gradients are not reduced a second time; leave synchronize() out, or "
                    "put step() into 'with optimizer.skip_synchronize():' for releases of Horovod that would.",
                    stacklevel=users_level(),
                )
            if closure is None:
                self._take_up_new()
                self._access.synchronize()
            else:
                closure = self._synchronizing(closure)
        elif self._access.step_has_begun:
            raise AssertionError(
                "optimizer.step() was called within optimizer.skip_synchronize() while gradients are being reduced. "
                "Call optimizer.synchronize() before, or step() without skip_synchronize()."
            )
        self._synchronized = False
        result = self._plain_step(closure, *args, **kwargs)
        self._access.forget_settled()
        after_step(self)
        if self._access.check is not None:
            self._access.check.step_over()
        return result

    # Optimizer.__setstate__ would wrap a class's step for its profile and hooks; the user's class has that already.
    step.hooked = True  # type: ignore[attr-defined]

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """As the user's class does it (`set_to_none=True` by default). Between `backward` and `step` it is collective:
        waits for the gradients under way, with zeros for those that this rank has not computed. All ranks must discard
        the same steps; `torch.autograd.grad` computes gradients of one rank alone."""
        discard_step(self._access)
        self._access.attach(has_new=False)
        take_back_orphans(self._access)
        super().zero_grad(*args, **kwargs)

    def _take_up_new(self) -> None:
        """Reduces the gradients of parameters, too, that were added without our `add_param_group`."""
        if self._names.extend(self.param_groups):
            self._access.attach()
            if self._access.step_has_begun:
                AfterPass(self._access).stand_in_for_missing()  # a pass may have computed them already

    def _plain_step(self, closure: Optional[Callable[[], Any]], *args: Any, **kwargs: Any) -> Any:
        """The step of the user's class."""
        if hasattr(self._wrapped.step, "_wrapped_by_lr_sched"):
            # A scheduler that was made before this wrapper watches the plain optimizer.
            self._wrapped._opt_called = True  # type: ignore[attr-defined]
        step = super().step
        # Optimizers of users' own may take no closure.
        return step(*args, **kwargs) if closure is None and not args else step(closure, *args, **kwargs)

    def _synchronizing(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        decides_by_loss = isinstance(self, torch.optim.LBFGS)

        def run() -> Any:
            self._access.forget_settled()
            with torch.enable_grad():
                loss = closure()
            self._take_up_new()
            self._access.synchronize()
            if decides_by_loss:
                # All ranks must take the same decisions.
                name = self._names.engine_name("loss")
                return allreduce_(
                    torch.as_tensor(loss).detach().clone(), name=name, process_set=self._access.options.process_set
                )
            return loss

        return run

    # ---- for parameter_check

    def _hvd_named_parameters(self) -> list[tuple[str, torch.Tensor]]:
        return [(self._names.name(number), parameter) for number, parameter in enumerate(self._names.parameters)]

    # ---- for broadcast_optimizer_state

    @property
    def _scope(self) -> Scope:
        return self._names.scope

    def _adopt_scope(self, scope: Scope) -> None:
        """Takes over the root's distinction between optimizers with equal parameter names."""
        if self._names.adopt(scope):
            self._access.settle()
            self._access.rename()


def _follow_loading(reference: weakref.ref[DistributedMethods], wrapped: torch.optim.Optimizer) -> None:
    """Lets a distributed optimizer have what is loaded into the one that it wraps, e.g. by a trainer that made it."""

    def take_over(loaded: torch.optim.Optimizer) -> None:
        distributed = reference()
        if distributed is not None and loaded is not distributed:
            _share(loaded, distributed)

    # Absent in older torch, and from optimizers of other libraries, and without effect in a class that does not call
    # Optimizer.__init__: it lacks the table of hooks.
    register: Any = getattr(wrapped, "register_load_state_dict_post_hook", lambda hook: None)
    with contextlib.suppress(AttributeError):
        register(take_over)


def _share(source: torch.optim.Optimizer, target: torch.optim.Optimizer) -> None:
    """Lets an optimizer have the state and the groups of another one. Where they are properties of the class, both have
    those of one inner optimizer."""
    for name in ("state", "param_groups"):
        if name in source.__dict__:
            setattr(target, name, getattr(source, name))
