"""`increment_versions(tensors)`: tells autograd that tensors have changed, so that it refuses to use what it has saved.

torch.autograd.graph.increment_version spends most of its time on finding out what it was given; the compiled function
behind it takes half as long. It is not public: where it is missing or works differently, the public one is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable

import torch
from torch.autograd.graph import increment_version

__all__ = ["increment_versions"]


def _fastest() -> Callable[[Sequence[Any]], Any]:
    compiled: Any = getattr(torch._C, "_increment_version", None)
    try:
        probes = (torch.empty(0), torch.empty(0))
        before = [probe._version for probe in probes]
        compiled(probes)
        works = [probe._version for probe in probes] == [count + 1 for count in before]
    except (TypeError, RuntimeError):  # it is missing, takes something else, or tensors made here have no version
        works = False
    return compiled if works else increment_version


increment_versions: Callable[[Sequence[Any]], Any] = _fastest()
