"""`DistributedTrainer` for gluon, and `DistributedOptimizer` for Module: an optimizer of MXNet gets mean gradients."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Optional

import mxnet as mx

from horovod._core.callers import users_level
from horovod._core.errors import InvalidArgumentError
from horovod._core.integers import as_integer
from horovod._core.life import session
from horovod._core.life.process_sets import ProcessSet, global_process_set
from horovod._core.operations.reduce_ops import Average, Sum
from horovod._core.operations.submission import member_set
from horovod._core.tensors.compression import Compressor
from horovod._core.training.groups import assign_groups
from horovod._core.training.reduction_options import ReductionOptions
from horovod.mxnet.adapter import adapter
from horovod.mxnet.compression import Compression
from horovod.mxnet.failures import wait_for
from horovod.mxnet.ops import reduce_in_place

__all__ = ["DistributedOptimizer", "DistributedTrainer"]


class DistributedOptimizer(mx.optimizer.Optimizer):
    """An optimizer that averages the gradients over the ranks before it uses them. It has all attributes of the given
    one, and shares them.

    `update` is collective and returns at once; a failure is an error where a parameter is waited for.

    Args:
        optimizer: of MXNet.
        gradient_predivide_factor: f splits the averaging: 1/f before the sum, f/size after it.
        num_groups: into how many groups the gradients of one update are divided; 0: each goes alone.
        process_set: the ranks that take part.
    """

    __slots__ = ("_hvd_groups", "_hvd_options", "_hvd_optimizer")

    def __init__(
        self,
        optimizer: Any,
        gradient_predivide_factor: float = 1.0,
        num_groups: int = 0,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        self._hvd_optimizer = optimizer
        self._hvd_options = ReductionOptions(
            gradient_predivide_factor=gradient_predivide_factor, process_set=process_set
        )
        self._hvd_groups = _number_of(num_groups)
        self.__dict__ = optimizer.__dict__  # type: ignore[misc]

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "_hvd_optimizer"), name)

    def create_state(self, index: Any, weight: Any) -> Any:
        """The optimizer's."""
        return self._hvd_optimizer.create_state(index, weight)

    def create_state_multi_precision(self, index: Any, weight: Any) -> Any:
        """The optimizer's."""
        return self._hvd_optimizer.create_state_multi_precision(index, weight)

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """Averages the gradient, or the gradients of a list, then updates. Collective."""
        self._average(index, grad)
        self._hvd_optimizer.update(index, weight, grad, state)

    def update_multi_precision(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """Likewise, where the optimizer keeps weights of more bits. Collective."""
        self._average(index, grad)
        self._hvd_optimizer.update_multi_precision(index, weight, grad, state)

    def _average(self, index: Any, grad: Any) -> None:
        several = isinstance(index, (list, tuple))
        indices, grads = (list(index), list(grad)) if several else ([index], [grad])
        names = [str(self.idx2name.get(one, one)) for one in indices]
        _reduce(grads, names, _priorities(indices), self._hvd_options, self._hvd_groups)


class DistributedTrainer(mx.gluon.Trainer):
    """A `gluon.Trainer` that sums the gradients over the ranks and divides by their number when it updates.

    Args:
        params: `block.collect_params()`, or a dictionary or list of parameters, whose names are equal on all ranks.
        optimizer: its name, or an object.
        optimizer_params: for a name: its arguments.
        compression: how gradients travel: Compression.none, fp16 or bf16.
        gradient_predivide_factor: f divides gradients before the sum, and f/size after it.
        prefix: what the names of the operations begin with, where several trainers have parameters of the same names.
        num_groups: into how many groups the gradients are divided; 0: each goes alone.
        process_set: the ranks that take part.
    """

    def __init__(
        self,
        params: Any,
        optimizer: Any,
        optimizer_params: Optional[dict[str, Any]] = None,
        compression: Compressor = Compression.none,
        gradient_predivide_factor: float = 1.0,
        prefix: Optional[str] = None,
        num_groups: int = 0,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        if isinstance(optimizer, DistributedOptimizer):
            warnings.warn(
                "DistributedTrainer reduces the gradients itself; it uses the optimizer inside the "
                "DistributedOptimizer. Give it that one.",
                stacklevel=users_level(),
            )
            optimizer = optimizer._hvd_optimizer
        # Checks that averaging would be possible: the trainer divides.
        self._hvd_options = ReductionOptions(Average, compression, gradient_predivide_factor, process_set=process_set)
        self._hvd_groups = _number_of(num_groups)
        self._hvd_prefix = prefix or ""
        if isinstance(params, (list, tuple)):
            params = sorted(params, key=lambda parameter: getattr(parameter, "name", ""))
        super().__init__(params, optimizer, optimizer_params, kvstore=None)
        if self._contexts is not None and len(self._contexts) > 1:
            raise InvalidArgumentError(
                f"DistributedTrainer needs parameters on one device. They are on {len(self._contexts)}: "
                f"{', '.join(map(str, self._contexts))}. Start a rank for each device, and initialize with one context."
            )
        member_set(session.require(), process_set)
        self._scale *= gradient_predivide_factor / len(process_set.ranks or ())

    def _allreduce_grads(self) -> None:
        """Sums the gradients, and waits for that, so that a failure ends the step. Collective."""
        indices = [i for i, parameter in enumerate(self._params) if parameter.grad_req != "null"]
        grads = [self._params[i].list_grad()[0] for i in indices]
        names = [self._hvd_prefix + self._params[i].name for i in indices]
        _reduce(grads, names, _priorities(indices), self._hvd_options, self._hvd_groups, Sum)
        wait_for(grads)


def _priorities(indices: Sequence[Any]) -> list[int]:
    """The first layers' are needed first."""
    return [0 if as_integer(index) is None else -int(index) for index in indices]


def _reduce(
    grads: Sequence[Any],
    names: Sequence[str],
    priorities: Sequence[int],
    options: ReductionOptions,
    groups: int,
    op: int = Average,
) -> None:
    """Reduces gradients in place, in groups. Collective. A sum is divided by the user of the gradients."""
    prescale, postscale = options.factors
    factors = (prescale, postscale if op == Average else 1.0)
    compress, decompress = options.compression.compress, options.compression.decompress
    positions = range(len(grads))
    for group in assign_groups(positions, groups) or [(position,) for position in positions]:
        members: list[Any] = list(group)
        pairs = [compress(grads[i]) for i in members]
        own = tuple(f"gradient.{names[i]}" for i in members)
        reduce_in_place(
            [sent for sent, _ in pairs], own, op, factors, options.process_set, max(priorities[i] for i in members)
        )
        for i, (sent, context) in zip(members, pairs):
            adapter.copy_into(grads[i], decompress(sent, context))


def _number_of(groups: Any) -> int:
    number = as_integer(groups)
    if number is None or number < 0:
        raise InvalidArgumentError(f"num_groups must be an integer >= 0. Received: {groups!r}.")
    return number
