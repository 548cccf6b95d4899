"""Horovod: collectives for data-parallel training. Training scripts import `horovod.torch`, `horovod.numpy`, ...

Used by every import of `horovod.*`, so it imports nothing but what a name asked for needs: `run` brings in the launcher
on first use, and so do the modules that upstream's programs reach as attributes.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from horovod import common, runner
    from horovod.runner import run

__all__ = ["__version__", "common", "run", "runner"]

__version__ = "1.0.0"


def __getattr__(name: str) -> object:
    if name == "run":
        from horovod.runner import run

        return run
    if name in ("common", "runner"):
        return importlib.import_module(f"horovod.{name}")
    raise AttributeError(
        f"module 'horovod' has no attribute {name!r}; for a training script: import horovod.torch (or .tensorflow, "
        ".keras, .numpy) as hvd"
    )
