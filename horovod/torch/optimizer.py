"""`DistributedOptimizer`: an optimizer of the user's own class that steps with gradients combined over the ranks.

Used by training scripts around any `torch.optim.Optimizer`. A hook per parameter hands each gradient over as soon as it
has been accumulated; `step` waits for the results. Counting, grouping, compression and submission are the core's
(`horovod._core.gradients`), the gradients' place in memory is `resident`'s, how they are read and written is
`gradient_access`'s, and `op=hvd.Adasum` is in `adasum_optimizer`.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterable, Iterator
from typing import Any, Callable, Optional

import torch

from horovod._core import compression as compressors
from horovod._core import context
from horovod._core.compression import Compressor
from horovod._core.errors import InvalidArgumentError
from horovod._core.gradients import ReductionOptions
from horovod._core.groups import chosen_groups
from horovod._core.process_sets import ProcessSet, global_process_set
from horovod._core.reduce_ops import Adasum, Average
from horovod.torch.gradient_access import GradientAccess, Groups
from horovod.torch.ops import allreduce_
from horovod.torch.optimizer_names import OptimizerNames

__all__ = ["DistributedMethods", "DistributedOptimizer"]

_none: Compressor = compressors.none


class DistributedMethods(torch.optim.Optimizer):
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
        self._access.attach()

    @staticmethod
    def find_duplicates(lst: Iterable[Any]) -> set[Any]:
        """The entries that occur more than once."""
        seen: set[Any] = set()
        return {entry for entry in lst if entry in seen or seen.add(entry)}  # type: ignore[func-returns-value]

    @property
    def backward_passes_per_step(self) -> int:
        """How many backward passes accumulate into a gradient before it is reduced."""
        return self._access.passes

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Changes how many backward passes accumulate into a gradient before it is reduced, from the next one on.

        Raises:
            InvalidArgumentError: not a positive integer.
        """
        self._access.set_passes(passes)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As the user's class does it; accepts what a plain optimizer has saved. Gradients under way are waited for."""
        self._access.settle()
        self._synchronized = False
        super().load_state_dict(state_dict)
        # Schedulers that were made before this wrapper hold the plain optimizer.
        self._wrapped.state = self.state
        self._wrapped.param_groups = self.param_groups

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As the user's class does it; the new gradients are reduced too. Collective in its effect: all ranks must add
        equal groups."""
        super().add_param_group(param_group)
        self._names.extend(self.param_groups)
        self._access.attach()

    def __reduce_ex__(self, protocol: Any) -> Any:
        # Hooks and operations cannot be copied: a copy or pickle is a plain optimizer of the user's class.
        plain = type(self._wrapped)
        return _plain_optimizer, (plain,), self.__getstate__()

    # ---- work

    @torch.compiler.disable  # type: ignore[untyped-decorator,unused-ignore]
    def synchronize(self) -> None:
        """Waits until all gradients are reduced. Collective. Called by `step`; call it yourself to look at or clip the
        gradients before, and then `step` within `skip_synchronize`. A parameter without a gradient on this rank
        contributes zeros, and gets the result.

        Raises:
            MismatchError: the ranks disagree about a gradient.
            HorovodInternalError: a rank died, or the engine is shutting down.
        """
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

    @torch.compiler.disable  # type: ignore[untyped-decorator,unused-ignore]
    def step(self, closure: Optional[Callable[[], Any]] = None, *args: Any, **kwargs: Any) -> Any:
        """Synchronizes the gradients (but see `skip_synchronize`), then steps as the user's class does.

        Collective.

        Args:
            closure: computes the loss and the gradients anew; the gradients are synchronized after each of its calls.

        Raises:
            MismatchError: the ranks disagree about a gradient.
            HorovodInternalError: a rank died, or the engine is shutting down.
        """
        if self._should_synchronize:
            if self._synchronized:
                warnings.warn(
                    "optimizer.step() was called after optimizer.synchronize() and reduces the gradients again. Put "
                    "step() into 'with "
                    "optimizer.skip_synchronize():' to avoid that.",
                    stacklevel=2,
                )
            if closure is None:
                self.synchronize()
            else:
                closure = self._synchronizing(closure)
        self._synchronized = False
        return self._plain_step(closure, *args, **kwargs)

    # Optimizer.__setstate__ would wrap a class's step for its profile and hooks; the user's class has that already.
    step.hooked = True

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """As the user's class does it (`set_to_none=True` by default).

        Raises:
            AssertionError: gradients are being reduced: call it after `step` or `synchronize`, or before `backward`.
        """
        if self._access.pending:
            raise AssertionError(
                "optimizer.zero_grad() was called after loss.backward() but before optimizer.step() or "
                "optimizer.synchronize(), while gradients "
                "are being reduced. Call it after step(), or before backward()."
            )
        super().zero_grad(*args, **kwargs)

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
            with torch.enable_grad():
                loss = closure()
            self._access.synchronize()
            if decides_by_loss:
                # All ranks must take the same decisions.
                name = self._names.engine_name("loss")
                return allreduce_(
                    torch.as_tensor(loss).detach().clone(), name=name, process_set=self._access.process_set
                )
            return loss

        return run

    # ---- for broadcast_optimizer_state

    @property
    def _scope(self) -> str:
        return self._names.scope

    def _adopt_scope(self, scope: str) -> None:
        """Takes over the root's distinction between optimizers with equal parameter names."""
        if scope != self._names.scope:
            self._access.settle()
            self._names.scope = scope
            self._access.rename()


def _plain_optimizer(kind: type[torch.optim.Optimizer]) -> torch.optim.Optimizer:
    return kind.__new__(kind)


def DistributedOptimizer(  # noqa: N802 - a class to its users
    optimizer: torch.optim.Optimizer,
    named_parameters: Optional[Iterable[tuple[str, torch.Tensor]]] = None,
    compression: Compressor = _none,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Groups = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """An optimizer that combines the gradients over the ranks before it steps.

    Collective in its effect: all members of the process set must wrap the same parameters in the same order, and make
        the same number of steps.
    The optimizer's state, parameter groups and hooks are those of `optimizer`; on ranks outside the process set, and
    with a single rank, it steps with its own gradients.

    Args:
        optimizer: any `torch.optim.Optimizer`.
        named_parameters: (name, parameter) tuples, as of `model.named_parameters()`; names must be equal on all ranks.
            None: numbered.
        compression: `hvd.Compression.none`, `.fp16` or `.bf16`.
        backward_passes_per_step: gradients are accumulated so many times, and then reduced once.
        op: Average, Sum, Min, Max, Product; Adasum combines the steps instead of the gradients.
        gradient_predivide_factor: f splits the averaging: multiplies with 1/f before the sum and with f/size after it.
        num_groups: deprecated; use `groups`.
        groups: number of groups, or lists of parameters; the gradients of a group are reduced as one unit.
        sparse_as_dense: reduce sparse gradients as dense ones.
        process_set: the ranks that take part.

    Returns:
        An instance of a class that has the name of, and is derived from, the class of `optimizer`, with these methods
        besides: `synchronize`, `skip_synchronize`, `set_backward_passes_per_step`.

    Raises:
        InvalidArgumentError: a bad argument: named_parameters that are no tuples, repeat a name or leave parameters
            out; a predivide factor with another op than Average; no positive number of passes; groups that are neither
            a number nor lists of parameters.
        UnsupportedError: Adasum on a process set.
        NotInitializedError: `init` has not been called.
    """
    groups = chosen_groups(groups, num_groups)
    context.size()  # raises if not initialised
    options = ReductionOptions(op, compression, gradient_predivide_factor, backward_passes_per_step, process_set)
    if isinstance(optimizer, DistributedMethods):
        raise InvalidArgumentError(
            "This optimizer is a DistributedOptimizer already; its gradients would be reduced twice. Wrap the plain "
            "one."
        )
    names = OptimizerNames(optimizer.param_groups, named_parameters)
    base: type[Any] = DistributedMethods
    if op == Adasum:
        from horovod.torch.adasum_optimizer import AdasumMethods

        base = AdasumMethods
    kind = type(optimizer)
    made = type(kind.__name__, (base, kind), {"__module__": kind.__module__, "__doc__": kind.__doc__})
    distributed: Any = made.__new__(made)  # type: ignore[call-overload]
    # A scheduler that was made before has replaced the plain optimizer's step; that one must not shadow ours.
    distributed.__dict__.update({key: value for key, value in optimizer.__dict__.items() if key != "step"})
    distributed._begin(optimizer, names, options, groups, sparse_as_dense)
    return distributed
