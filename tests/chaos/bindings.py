"""The training's state in each framework: eight whole numbers that change from step to step in one way only.

The numbers of a step follow from those of the step before, so that a step that was lost, done twice or done out of
order shows in all later ones. They do not depend on how many ranks there are: each brings its share of the same sum.
"""

from __future__ import annotations

import functools
import hashlib
from typing import Any, Protocol

import numpy as np

NUMBERS = 8
_MODULUS = 2**31 - 1


def target(step: int) -> np.ndarray:
    """What all ranks together bring to a step."""
    return (np.arange(1, NUMBERS + 1, dtype=np.int64) * 2654435761 + step * 40503) % _MODULUS


def share(step: int, rank: int, size: int) -> np.ndarray:
    """What one of them brings."""
    whole = target(step)
    return whole // size + (rank < whole % size)


def follow(numbers: np.ndarray, total: np.ndarray) -> np.ndarray:
    """The numbers after a step."""
    return (numbers * 31 + total) % _MODULUS


@functools.cache
def _known() -> list[np.ndarray]:
    return [np.zeros(NUMBERS, np.int64)]


def expected(step: int) -> np.ndarray:
    """The numbers of a training without faults after so many steps."""
    known = _known()
    while len(known) <= step:
        known.append(follow(known[-1], target(len(known) - 1)))
    return known[step]


def digest(numbers: np.ndarray, step: int) -> str:
    """Equal for equal states."""
    return hashlib.sha256(np.asarray(numbers, np.int64).tobytes() + step.to_bytes(8, "little")).hexdigest()[:16]


class Binding(Protocol):
    """A framework's part."""

    hvd: Any

    def state_class(self) -> type:
        """Of the elastic state."""

    def values(self) -> dict[str, Any]:
        """What the state begins with."""

    def get(self, state: Any) -> np.ndarray:
        """The numbers."""

    def put(self, state: Any, numbers: np.ndarray) -> None:
        """Others instead, in place where the framework does so."""

    def reduce(self, numbers: np.ndarray) -> np.ndarray:
        """The sum over all ranks, by the framework's own operation."""


class _NumPy:
    def __init__(self) -> None:
        import horovod.numpy

        self.hvd = horovod.numpy

    def state_class(self) -> type:
        return self.hvd.elastic.ObjectState

    def values(self) -> dict[str, Any]:
        return {"numbers": np.zeros(NUMBERS, np.int64)}

    def get(self, state: Any) -> np.ndarray:
        return state.numbers

    def put(self, state: Any, numbers: np.ndarray) -> None:
        state.numbers[:] = numbers

    def reduce(self, numbers: np.ndarray) -> np.ndarray:
        return self.hvd.allreduce(numbers, name="numbers", op=self.hvd.Sum)


class _Torch:
    def __init__(self) -> None:
        import torch

        import horovod.torch

        self.hvd, self.torch = horovod.torch, torch

    def state_class(self) -> type:
        return self.hvd.elastic.TorchState

    def values(self) -> dict[str, Any]:
        model = self.torch.nn.Module()
        model.register_buffer("numbers", self.torch.zeros(NUMBERS, dtype=self.torch.int64))
        return {"model": model}

    def get(self, state: Any) -> np.ndarray:
        return state.model.numbers.numpy()

    def put(self, state: Any, numbers: np.ndarray) -> None:
        state.model.numbers.copy_(self.torch.from_numpy(numbers))

    def reduce(self, numbers: np.ndarray) -> np.ndarray:
        return self.hvd.allreduce(self.torch.from_numpy(numbers), name="numbers", op=self.hvd.Sum).numpy()


class _TensorFlow:
    def __init__(self) -> None:
        import tensorflow

        import horovod.tensorflow

        self.hvd, self.tf = horovod.tensorflow, tensorflow

    def state_class(self) -> type:
        return self.hvd.elastic.TensorFlowState

    def values(self) -> dict[str, Any]:
        self.variable = self.tf.Variable(np.zeros(NUMBERS, np.int64))
        return {"variables": [self.variable]}

    def get(self, state: Any) -> np.ndarray:
        return self.variable.numpy()

    def put(self, state: Any, numbers: np.ndarray) -> None:
        self.variable.assign(numbers)

    def reduce(self, numbers: np.ndarray) -> np.ndarray:
        return self.hvd.allreduce(self.tf.constant(numbers), name="numbers", op=self.hvd.Sum).numpy()


_BINDINGS = {"numpy": _NumPy, "torch": _Torch, "tensorflow": _TensorFlow}


def binding(name: str) -> Binding:
    """The part of a framework, which is imported by that."""
    return _BINDINGS[name]()
