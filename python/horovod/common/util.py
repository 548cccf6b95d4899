"""Upstream's path of some small functions. See `horovod._core.compat.legacy`."""

from __future__ import annotations

from horovod._core.compat import legacy as _legacy
from horovod._core.compat.legacy import *  # noqa: F403
from horovod._core.compat.legacy import memoised as _cache

__all__ = ["_cache"]
__all__ += _legacy.__all__
