"""Upstream's path of the basic functions. See `horovod._core.context`."""

from __future__ import annotations

from horovod._core.basics import HorovodBasics

__all__ = ["HorovodBasics"]
