"""`increment_versions(tensors)`: tells autograd that tensors have changed, so that it refuses to use what it has saved.

torch.autograd.graph.increment_version spends most of its time on finding out what it was given; the compiled function
behind it takes half as long. It is not public: where it is missing or works differently, the public one is used, which
takes one tensor alone in older versions of torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable

import torch
from torch.autograd.graph import increment_version

__all__ = ["increment_versions"]


def _one_by_one(tensors: Sequence[Any]) -> None:
    for tensor in tensors:
        increment_version(tensor)


def _works(increment: Callable[[Sequence[Any]], Any]) -> bool:
    try:
        probes = (torch.empty(0), torch.empty(0))
        before = [probe._version for probe in probes]
        increment(probes)
        return [probe._version for probe in probes] == [count + 1 for count in before]
    except (AttributeError, TypeError, RuntimeError):  # it takes something else, or tensors made here have no version
        return False


def _fastest() -> Callable[[Sequence[Any]], Any]:
    compiled: Any = getattr(torch._C, "_increment_version", None)
    return next(filter(_works, (compiled, increment_version)), _one_by_one)


increment_versions: Callable[[Sequence[Any]], Any] = _fastest()
