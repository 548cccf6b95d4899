"""Horovod: collectives for data-parallel training. Training scripts import `horovod.torch`, `horovod.numpy`, ...

Used by every import of `horovod.*`, so it imports nothing but what a name asked for needs: `run` brings in the launcher
on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from horovod.runner import run

__all__ = ["__version__", "run"]

__version__ = "1.0.0.dev0"


def __getattr__(name: str) -> object:
    if name == "run":
        from horovod.runner import run

        return run
    raise AttributeError(f"module 'horovod' has no attribute {name!r}")
