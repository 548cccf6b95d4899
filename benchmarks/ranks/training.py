"""Training loops for the benchmarks, in a rank program: a ResNet-50 that is cheap to compute, perceptrons, and a model
of 161 tiny parameters.

Used by `tasks`. Every loop exists plain and wrapped by the library, side by side in the same process, so that
the difference of their times is what distribution costs.
"""

from __future__ import annotations

from typing import Any

import torch
from contenders.library import Library

from ranks import resnet50

# Small pictures: the parameters have their true sizes, but the convolutions have little to do. Two, for batch
# normalisation needs them.
_PICTURES, _PIXELS = 2, 32
_TINY_TENSORS, _TINY_ELEMS = 161, 64
RESNET = "resnet50"
_LAYERS, _BATCH, _CLASSES = 10, 32, 10  # of the perceptrons


class Loop:
    """zero_grad (the default: to None), forward, backward, step.

    Args:
        library: wraps the model and optimizer of every variant but "plain".
        variant: plain, wrapped or resident.
        model: RESNET, or the width of a perceptron of 10 such layers.

    Attributes:
        steps: made so far.
    """

    def __init__(self, library: Library, variant: str, model: str) -> None:
        torch.manual_seed(1)
        self.steps = 0
        if model == RESNET:
            self._own, shape, classes = resnet50.model(), (_PICTURES, 3, _PIXELS, _PIXELS), resnet50.CLASSES
        else:
            self._own, shape, classes = _perceptron(int(model)), (_BATCH, int(model)), _CLASSES
        self._model: Any = self._own
        self._optimizer: Any = torch.optim.SGD(self._own.parameters(), lr=0.001)
        if variant != "plain":
            self._model, self._optimizer = library.wrapped(self._own, self._optimizer, variant)
        torch.manual_seed(2 + library.rank)
        self._inputs = torch.randn(shape)
        self._labels = torch.randint(classes, shape[:1])
        self._loss = torch.nn.CrossEntropyLoss()

    def step(self) -> None:
        """One step; the next one sees other inputs."""
        self._optimizer.zero_grad()
        self._loss(self._model(self._inputs), self._labels).backward()
        self._optimizer.step()
        self._inputs = self._inputs.roll(1, -1)
        self.steps += 1

    def checksum(self) -> list[float]:
        """Sums over the parameters; equal on all ranks when the gradients were combined."""
        with torch.no_grad():
            tensors = list(self._own.parameters())
            return [sum(float(t.double().sum()) for t in tensors), sum(float(t.double().abs().sum()) for t in tensors)]


def _perceptron(width: int) -> torch.nn.Sequential:
    layers: list[torch.nn.Module] = []
    for _ in range(_LAYERS):
        layers += [torch.nn.Linear(width, width), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(width, _CLASSES))


class TinyLoop:
    """The same with parameters so small that only bookkeeping is left.

    Args:
        library: wraps the variant "wrapped", and reduces each gradient after backward in the variant "raw".
        variant: plain, raw or wrapped.

    Attributes:
        steps: made so far.
    """

    def __init__(self, library: Library, variant: str) -> None:
        self.steps = 0
        torch.manual_seed(3)
        model = torch.nn.Module()
        for number in range(_TINY_TENSORS):
            model.register_parameter(f"p{number}", torch.nn.Parameter(torch.randn(_TINY_ELEMS)))
        self._parameters = list(model.parameters())
        self._factors = [torch.full((_TINY_ELEMS,), 1.0 + library.rank) for _ in self._parameters]
        self._optimizer: Any = torch.optim.SGD(self._parameters, lr=0.01)
        self._library = library
        self._raw = variant == "raw"
        if variant == "wrapped":
            _, self._optimizer = library.wrapped(model, self._optimizer)

    def step(self) -> None:
        """One step."""
        self._optimizer.zero_grad()
        terms = [torch.dot(parameter, factor) for parameter, factor in zip(self._parameters, self._factors)]
        torch.stack(terms).sum().backward()
        if self._raw:
            import horovod.torch as hvd

            handles = [
                hvd.allreduce_async_(parameter.grad, name=f"tiny.{number}")
                for number, parameter in enumerate(reversed(self._parameters))
            ]
            for handle in handles:
                hvd.synchronize(handle)
        self._optimizer.step()
        self.steps += 1

    def checksum(self) -> list[float]:
        """Sum over the parameters; equal on all ranks when the gradients were combined."""
        with torch.no_grad():
            return [sum(float(parameter.double().sum()) for parameter in self._parameters)]
