"""How a distributed Keras optimizer reduces its gradients, whatever backend Keras runs on.

`Reducer` is what `optimizer` uses; the backends' own are in `backends`, of which this process takes one. It computes
no gradient and applies none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Callable, Final, TypeVar

from horovod._core.errors import InvalidArgumentError
from horovod._core.life.process_sets import leaves_out_this_rank
from horovod._core.operations.collectives import Collectives
from horovod._core.training.reducer import GradientReducer, GradientSource
from horovod._core.training.reduction_options import ReductionOptions
from horovod.keras.installed import keras

__all__ = [
    "REMEDY",
    "ListReducer",
    "Reducer",
    "ReductionSettings",
    "groups_of",
    "names_of",
    "variables_of_layers",
]


# For variables that differ.
REMEDY: Final = (
    "They must be equal when training begins: give model.fit hvd.callbacks.BroadcastGlobalVariablesCallback(0)."
)

_Same = TypeVar("_Same", bound="Reducer")


@dataclass(frozen=True)
class ReductionSettings:
    """The arguments of a `DistributedOptimizer` that say how gradients are reduced.

    Args:
        scope: begins the operations' names.
        options: op, factors, compression, passes, process set.
        devices: of the operators for dense and for sparse gradients; "" = TensorFlow's choice.
        sparse_as_dense: make IndexedSlices dense first.
        groups: the number of groups, or lists of variables, each a group; None: the backend's default.
        average_passes: divide what several passes have added up by their number.
        scale_local: divide the gradients of local variables by the number of ranks.
    """

    scope: str
    options: ReductionOptions
    devices: tuple[str, str] = ("", "")
    sparse_as_dense: bool = False
    groups: Any = None
    average_passes: bool = False
    scale_local: bool = True


class Reducer:
    """Reduces the gradients of one optimizer. Base of the backends'.

    Args:
        settings: how.
    """

    def __init__(self, settings: ReductionSettings) -> None:
        self.settings = settings
        # Held, so that no later variable gets the identity of one that is gone.
        self._local: list[Any] = []
        self._local_layers: list[Any] = []

    def register_local(self, variable: Any) -> None:
        """The variable's gradient will not be reduced."""
        self._local.append(variable)

    def register_local_layers(self, layers: Any) -> None:
        """As `register_local`, for all trainable weights that the layers have when gradients arrive.

        Args:
            layers: a Keras layer, a list of them, or None.

        Raises:
            InvalidArgumentError: something else.
        """
        listed = [] if layers is None else list(layers) if isinstance(layers, (list, tuple)) else [layers]
        for layer in listed:
            if not isinstance(layer, keras.layers.Layer):
                raise InvalidArgumentError(
                    f"local_layers must be a Keras layer or a list of layers. Received: {type(layer).__name__}."
                )
        self._local_layers += listed

    @property
    def takes_part(self) -> bool:
        """False on a rank outside the process set: it applies its own gradients."""
        return not leaves_out_this_rank(self.settings.options.process_set)

    def local_variables(self) -> list[Any]:
        """The variables whose gradients are not reduced."""
        return self._local + variables_of_layers(self._local_layers)

    def reduce(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """The gradients of all ranks combined. Collective.

        Args:
            gradients: None on all ranks or on none.
            variables: what they are the gradients of.

        Returns:
            In the same order; None stays None.
        """
        raise NotImplementedError

    def allreduce(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """What a distributed optimizer's `_allreduce` does. Collective."""
        return self.reduce(gradients, variables)

    def _divide_local(self, gradients: list[Any], variables: Sequence[Any]) -> list[int]:
        """Scales the local gradients, in the list; the places of all others."""
        local = {id(variable) for variable in self.local_variables()}
        shared = []
        for index, (gradient, variable) in enumerate(zip(gradients, variables)):
            if gradient is None:
                continue
            if id(variable) not in local:
                shared.append(index)
            elif self.settings.scale_local:
                gradients[index] = gradient / self.settings.options.process_set.size()
        return shared

    def fresh(self: _Same) -> _Same:
        """Another one that reduces the same way, for a copy of the optimizer."""
        made = type(self)(self.settings)
        made._local, made._local_layers = list(self._local), list(self._local_layers)
        return made

    def __deepcopy__(self: _Same, memo: Any) -> _Same:
        return self.fresh()

    def adopt(self, optimizer: Any) -> None:
        """The optimizer that will reduce this way has been made."""

    def reset(self) -> None:
        """Forgets the passes of steps that were begun: the next pass is the first of a step. Local."""

    def run(self, gradients: Sequence[Any], variables: Sequence[Any], apply: Callable[[list[Any]], Any]) -> Any:
        """Reduces, and returns what `apply` makes of the result; with several passes per step, it is called in the last
        of them only. Collective."""
        return apply(self.reduce(gradients, variables))


def variables_of_layers(layers: Sequence[Any]) -> list[Any]:
    """The trainable weights of the layers."""
    return [variable for layer in layers for variable in layer.trainable_weights]


def names_of(settings: ReductionSettings, variables: Sequence[Any]) -> list[str]:
    """The names of the operations, by the variables' places: layers may be numbered differently on a rank that has made
    more of them."""
    return [f"{settings.scope}/{index}.{variable.name}" for index, variable in enumerate(variables)]


def groups_of(settings: ReductionSettings, variables: Sequence[Any]) -> Any:
    """What `assign_groups` takes, with the variables' places for the variables: all together unless groups are asked
    for."""
    if settings.groups is None or isinstance(settings.groups, int):
        return 1 if settings.groups is None else settings.groups
    place = {id(variable): index for index, variable in enumerate(variables)}
    return [[place[id(v)] for v in group if id(v) in place] for group in settings.groups]


class ListReducer:
    """Reduces lists of tensors of the same variables, step after step, through the core's `GradientReducer`.

    Args:
        collectives: of the tensors' framework.
        settings: how.
        variables: what the tensors are the gradients of.
    """

    def __init__(self, collectives: Collectives, settings: ReductionSettings, variables: Sequence[Any]) -> None:
        self._tensors: list[Any] = []
        source = GradientSource(self._read, self._write)
        names, groups = list(enumerate(names_of(settings, variables))), groups_of(settings, variables)
        self._reducer = GradientReducer(collectives, names, source, settings.options, groups)

    def __call__(self, tensors: Sequence[Any]) -> list[Any]:
        """The reduced tensors; those given are changed in place where that is possible. Collective.

        Raises:
            MismatchError: the ranks disagree about a gradient.
            HorovodInternalError: a rank died, or the engine is shutting down.
        """
        self._tensors = list(tensors)
        try:
            self._reducer.synchronize()
        except BaseException:
            self._reducer.reset()
            raise
        reduced, self._tensors = self._tensors, []
        return reduced

    def _read(self, index: int) -> Any:
        return self._tensors[index]

    def _write(self, index: int, reduced: Any) -> None:
        self._tensors[index] = reduced
