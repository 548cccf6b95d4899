"""Horovod, ours or another installed one: the torch module, or the NumPy module. Used through `library`.

Variants of allreduce: "" (`allreduce_` of a named tensor without gradient), "resident" (the tensor lives in memory
that the ranks share; ours only). Gradient modes: "async" (each submitted as it comes, then waited for), "resident"
(the same with gradients that live in shared memory), "grouped" (one call for all).
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any, Callable

import numpy as np

from contenders.library import Library, Prepared, there_and_back, zeros


class Horovod(Library):
    """One module of Horovod.

    Args:
        flavour: torch or numpy.
    """

    def __init__(self, flavour: str) -> None:
        self._hvd = importlib.import_module(f"horovod.{flavour}")
        self._torch = importlib.import_module("torch") if flavour == "torch" else None
        self._hvd.init()
        self.rank, self.size = self._hvd.rank(), self._hvd.size()
        self.versions = f"horovod {getattr(importlib.import_module('horovod'), '__version__', 'of the source tree')}"
        self._made = 0

    def collective(self, operation: str, elems: int, variant: str) -> Prepared:
        """Variants: see the head of the file."""
        hvd, name = self._hvd, self._name(operation)
        tensor, array = self._tensor(elems, resident=variant == "resident")
        # Bound once, as for the peers.
        allreduce_, broadcast_, allgather, alltoall = hvd.allreduce_, hvd.broadcast_, hvd.allgather, hvd.alltoall
        reducescatter, total = hvd.reducescatter, hvd.Sum
        if operation == "allreduce":
            return Prepared([array], lambda: allreduce_(tensor, op=total, name=name), lambda _: [array])
        if operation == "broadcast":
            return Prepared([array], lambda: broadcast_(tensor, 0, name=name), lambda _: [array])
        if operation == "send":
            back, received = self._tensor(elems, resident=False)
            send, recv, other = hvd.send, hvd.recv, 1 - self.rank
            call = there_and_back(self.rank, lambda: send(tensor, other), lambda: recv(back, other))
            return Prepared([array], call, lambda _: [received])
        made: dict[str, Callable[[], Any]] = {
            "allgather": lambda: allgather(tensor, name=name),
            "alltoall": lambda: alltoall(tensor, name=name),
            "reducescatter": lambda: reducescatter(tensor, op=total, name=name),
        }
        if operation not in made:
            raise NotImplementedError(operation)
        return Prepared([array], made[operation], lambda result: [np.asarray(result)])

    def gradients(self, sizes: list[int], mode: str) -> Prepared:
        """Modes: see the head of the file."""
        hvd = self._hvd
        if mode not in ("async", "resident", "grouped"):
            raise NotImplementedError(mode)
        pairs = [self._tensor(size, resident=mode == "resident" and size * 4 >= 64 << 10) for size in sizes]
        prefix = self._name("gradients")
        named = [(tensor, f"{prefix}.{number}") for number, (tensor, _) in enumerate(pairs)]
        arrays = [array for _, array in pairs]
        submit, wait, total = hvd.allreduce_async_, hvd.synchronize, hvd.Sum
        if mode == "grouped":
            tensors, reduce_all = [tensor for tensor, _ in pairs], hvd.grouped_allreduce_
            return Prepared(arrays, lambda: reduce_all(tensors, op=total, name=prefix), lambda _: arrays)

        def run() -> None:
            for handle in [submit(tensor, op=total, name=name) for tensor, name in named]:
                wait(handle)

        return Prepared(arrays, run, lambda _: arrays)

    def wrapped(self, model: Any, optimizer: Any, variant: str = "wrapped") -> tuple[Any, Any]:
        """DistributedOptimizer with its defaults; "resident": as with HOROVOD_RESIDENT_GRADIENTS=1."""
        self._made += 1
        # Two wrapped models in one job must not share names.
        named = [(f"{self._made}.{name}", parameter) for name, parameter in model.named_parameters()]
        with self._resident_gradients() if variant == "resident" else contextlib.nullcontext():
            return model, self._hvd.DistributedOptimizer(optimizer, named_parameters=named)

    def close(self) -> None:
        """Collective."""
        self._hvd.shutdown()

    @contextlib.contextmanager
    def _resident_gradients(self) -> Iterator[None]:
        """Optimizers that are made in the body have their gradients in shared memory."""
        current = importlib.import_module("horovod._core.life.session").require()
        before = current.settings
        object.__setattr__(current, "settings", before.replace("benchmark", resident_gradients=True))
        try:
            yield
        finally:
            object.__setattr__(current, "settings", before)

    def _name(self, operation: str) -> str:
        self._made += 1
        return f"bench.{operation}.{self._made}"

    def _tensor(self, elems: int, resident: bool) -> tuple[Any, np.ndarray]:
        """A tensor and the same memory as an array."""
        if self._torch is None:
            if resident:
                raise NotImplementedError("resident arrays")
            array = zeros(elems)
            return array, array
        tensor = self._torch.zeros(elems)
        if resident:
            tensor = self._resident(tensor)
        return tensor, tensor.numpy()

    def _resident(self, tensor: Any) -> Any:
        """The tensor moved to where DistributedOptimizer keeps a gradient of its size."""
        homes = importlib.import_module("horovod.torch.gradients.resident")
        parameter = self._torch.nn.Parameter(tensor)  # type: ignore[union-attr]
        parameter.grad = self._torch.zeros_like(tensor)  # type: ignore[union-attr]
        home = homes.GradientHome()
        home.take_in(parameter)
        if home.view is None:
            raise NotImplementedError("resident: no shared memory for a tensor of this size")
        return home.tensors[1]


def make(flavour: str) -> Library:
    """Collective."""
    return Horovod(flavour)
