"""Upstream's path of the basic functions. See `horovod._core.life.context`."""

from __future__ import annotations

from horovod._core.compat.basics import HorovodBasics

__all__ = ["HorovodBasics"]
