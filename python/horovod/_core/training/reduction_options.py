"""`ReductionOptions`: how gradients are reduced, and checks of what users give a distributed optimizer.

Used by the optimizers of every framework, and by `reducer`. Nothing is submitted here.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from horovod._core.errors import InvalidArgumentError, UnsupportedError
from horovod._core.integers import as_integer
from horovod._core.life.process_sets import ProcessSet, global_process_set
from horovod._core.operations.reduce_ops import Average, Row, meant
from horovod._core.tensors.compression import Compressor, NoneCompressor, check_compressor

__all__ = ["ReductionOptions", "check_names", "checked_passes", "count_pass"]


@dataclass(frozen=True)
class ReductionOptions:
    """How gradients are reduced; the arguments of a DistributedOptimizer that have nothing to do with its framework.

    Args:
        op: Average, Sum, Adasum, ...
        compression: see `horovod._core.tensors.compression`.
        gradient_predivide_factor: f splits the averaging: 1/f before the sum, f/size after it.
        backward_passes_per_step: gradients are accumulated this many times before they are reduced.
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
        object.__setattr__(self, "backward_passes_per_step", checked_passes(self.backward_passes_per_step))
        if not isinstance(self.process_set, ProcessSet):
            raise InvalidArgumentError(f"process_set must be an hvd.ProcessSet. Received: {self.process_set!r}.")
        check_compressor(self.compression)
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


def checked_passes(passes: Any) -> int:
    """`passes` as an int. Raises InvalidArgumentError unless it is a positive integer."""
    number = as_integer(passes)
    if number is None or number < 1:
        raise InvalidArgumentError(f"backward_passes_per_step must be an integer >= 1. Received: {passes!r}.")
    return number


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
    if listed and nameless == len(listed):
        raise InvalidArgumentError(
            f"None of the {len(named)} tensors in named_parameters is a parameter of this optimizer; pass "
            "model.named_parameters() of the same model (state_dict() holds other tensors)."
        )
    if nameless:
        raise InvalidArgumentError(
            f"named_parameters lacks {nameless} of the optimizer's {len(listed)} parameters; name all of them, "
            "or give no names at all."
        )
    return [(key, name_of[key]) for key in listed]
