"""Data loaders of any framework: a minimal protocol and pre-fetching in a thread."""

from __future__ import annotations

from horovod.data.data_loader_base import AsyncDataLoaderMixin, BaseDataLoader

__all__ = ["AsyncDataLoaderMixin", "BaseDataLoader"]
