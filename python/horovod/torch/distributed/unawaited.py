"""Works that C++ has and nobody has waited for, where torch (such as 2.4) does not keep their Python part.

C++ then waits by torch's own method, which never ends. So a work whose last Python reference goes stays here until C++
asks for its end.
"""

from __future__ import annotations

import datetime
from typing import Any, Final

import torch.distributed as dist

__all__ = ["Unawaited", "torch_keeps_works"]

_MOST: Final = 1024
_ProcessGroup: Any = dist.ProcessGroup


class _Work(dist.Work):
    def wait(self, timeout: Any = None) -> bool:
        return True


class _Group(_ProcessGroup):  # type: ignore[misc]
    def barrier(self, opts: Any = None) -> dist.Work:
        return _Work()


def torch_keeps_works() -> bool:
    """Whether C++ that is given a work keeps its Python part."""
    work = _ProcessGroup.barrier(_Group(0, 1), dist.BarrierOptions())  # by way of C++
    try:
        return bool(work.wait(datetime.timedelta(milliseconds=1)))
    except RuntimeError:  # torch's own method was called: it is late
        return False


class Unawaited:
    """Keeps works until they are waited for, the newest of many."""

    def __init__(self) -> None:
        self._works: dict[int, dist.Work] = {}

    def keep(self, work: dist.Work) -> None:
        """Called when Python drops it."""
        self._works[id(work)] = work
        if len(self._works) > _MOST:
            self._works.pop(next(iter(self._works)), None)

    def release(self, work: dist.Work) -> None:
        """Called when it is waited for, in the end or by a future."""
        self._works.pop(id(work), None)
