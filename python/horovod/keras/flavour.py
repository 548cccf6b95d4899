"""What Keras 2 and Keras 3 do differently, as functions of the one in use: `keras_2` or `keras_3`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional, Protocol

from horovod.keras.installed import KERAS_2

__all__ = ["Flavour", "flavour"]


class Flavour(Protocol):
    """The contents of `keras_2` and `keras_3`."""

    @property
    def DistributedMethods(self) -> Any:  # noqa: N802 - a class
        """What every distributed optimizer is."""

    def methods_of(self, kind: type) -> type:
        """The `DistributedMethods` for this class of optimizers: those that a distributed one has beside, or instead
        of, the user's. Mixed in before it."""

    @property
    def VARIABLE(self) -> Any:  # noqa: N802 - a constant
        """The class of a layer's variables."""

    @property
    def APPLY(self) -> str:  # noqa: N802 - a constant
        """The method that applies gradients."""

    def optimizer_bases(self) -> tuple[type, ...]:
        """The base classes of Keras' optimizers."""

    def are_reduced(self, optimizer: Any, gradients: list[Any], variables: Any = None, *_: Any) -> bool:
        """True if a distributed tape has combined one of the gradients that this plain optimizer is about to apply.

        Args:
            optimizer: a plain one.
            gradients, variables: and all others, as `APPLY` takes them.
        """

    def why_not(self, optimizer: Any) -> Optional[str]:
        """Why this optimizer cannot become a distributed one; None if it can."""

    def to_numpy(self, value: Any) -> Any:
        """A variable, a tensor, a number or an array as a NumPy array, not necessarily a copy."""

    def to_tensor(self, array: Any) -> Any:
        """A tensor of the backend with the array's values; the array itself in graphs of TensorFlow 1."""

    def assign(self, variables: Sequence[Any], values: Sequence[Any]) -> None:
        """Overwrites the variables."""

    def scale(self, variable: Any, factor: float) -> None:
        """Multiplies the variable."""

    def broadcast(self, variables: Sequence[Any], root_rank: int) -> None:
        """Overwrites the variables with the root's, by TensorFlow's operator. Collective."""

    def build(self, optimizer: Any, variables: Sequence[Any]) -> None:
        """Makes the optimizer's own variables, unless they exist."""

    def optimizer_variables(self, optimizer: Any) -> list[Any]:
        """The optimizer's own variables, those of a loss scale included."""

    def legacy_velocities(self, optimizer: Any) -> list[Any]:
        """As `variables.velocities`, of the SGD and RMSprop of Keras 2's first generation."""


def _of_this_process() -> Flavour:
    if KERAS_2:
        from horovod.keras import keras_2

        return keras_2
    from horovod.keras import keras_3

    return keras_3


flavour: Flavour = _of_this_process()
